"""Changes of a model after ``compile_step`` are noticed before the next step."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

import shardc
from shardc.diagnostics.api import ModelChanged
from shardc.step.compile_step import CompiledStep


class Scaled(nn.Module):
    """Attributes that the forward reads, sets, and does not look at."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.epoch, self.table, self.length = 2.0, 0, None, 0

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None or self.length != len(x):
            self.length, self.table = len(x), torch.ones(len(x), 1, dtype=x.dtype)
        return x * self.scale * self.table


def new_model(dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Linear(4, 8), Scaled(), *([nn.Dropout(dropout)] if dropout else []), nn.Linear(8, 2)
    return nn.Sequential(*layers).double()


def batch(number: int) -> tuple[Tensor]:
    generator = torch.Generator().manual_seed(number)
    return (torch.randn(6, 4, generator=generator, dtype=torch.float64),)


def loss_of(output: Tensor, _: object) -> Tensor:
    return output.square().mean()


def compiled(model: nn.Sequential, optimizer: Optimizer | None = None) -> CompiledStep:
    optimizer = SGD(model.parameters(), 0.1) if optimizer is None else optimizer
    return shardc.compile_step(model, optimizer, batch(0), mesh={"data": 1}, loss=loss_of, fuse=False)


def doubled(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(2)


def tripled(grad: Tensor) -> Tensor:
    return grad * 3


CHANGES: dict[str, tuple[Callable[[Any], object], str]] = {
    "requires_grad": (lambda m: m[3].bias.requires_grad_(False), "3.bias.requires_grad (True"),
    "gradient hook": (lambda m: m[0].weight.register_hook(tripled), "0.weight._backward_hooks"),
    "accumulated gradient hook": (
        lambda m: m[0].weight.register_post_accumulate_grad_hook(doubled),
        "0.weight._post_accumulate_grad_hooks",
    ),
    "forward hook": (lambda m: m[0].register_forward_hook(lambda *a: a[2] * 2), "0._forward_hooks"),
    "backward hook": (
        lambda m: m[3].register_full_backward_hook(lambda *a: (a[1][0] * 2,)),
        "3._backward_hooks",
    ),
    "buffer": (lambda m: m[0].register_buffer("mean", torch.ones(2)), "0._buffers['mean'] (absent"),
    "module": (lambda m: m.append(nn.Tanh()), "model._modules['4'] (absent"),
    "attribute": (lambda m: setattr(m[1], "scale", 3.0), "1.scale (2.0 when the step was compiled, 3.0 now)"),
    "dtype": (lambda m: m.float(), "0.weight.dtype (torch.float64 when"),
    "forward": (lambda m: setattr(m[1], "forward", torch.tanh), "1.forward (absent when"),
    "gone": (lambda m: delattr(m[1], "scale"), "1.scale (2.0 when the step was compiled, absent now)"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_refused_before_the_next_step(name: str) -> None:
    change, said = CHANGES[name]
    model = new_model(dropout=0.5)
    step = compiled(model)
    step(batch(0))
    before = {n: p.detach().clone() for n, p in model.named_parameters()} if name != "dtype" else {}
    change(model)
    with pytest.raises(ModelChanged) as caught:
        step(batch(1))
    assert said in str(caught.value) and f"at: {__file__}:" in str(caught.value)
    with pytest.raises(ModelChanged):
        step.local(batch(1))
    assert step.steps_done == 1
    for key in before.keys() & dict(model.named_parameters()).keys() - {"0.weight"}:
        assert torch.equal(before[key], model.get_parameter(key)), key


def normed() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 2)).double()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("modes", ["TETEET", "ETTE"])
def test_each_mode_has_a_program_over_the_same_state(modes: str) -> None:
    """Batch norm reads the statistics of the batch, and of the past in the other mode."""
    torch.manual_seed(0)
    ours, theirs = (normed() for _ in "ab")
    theirs.load_state_dict(ours.state_dict())
    mine, other = (torch.optim.Adam(model.parameters(), lr=0.1) for model in (ours, theirs))
    step = shardc.compile_step(ours, mine, batch(0), mesh={"data": 1}, loss=loss_of, fuse=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number, mode in enumerate(modes):
            for model in (ours, theirs):
                model.train(mode == "T")
            other.zero_grad()
            wanted = loss_of(theirs(*batch(number)), None)
            wanted.backward()
            other.step()
            assert abs(step(batch(number)).item() - wanted.item()) < 1e-12
            for (name, a), b in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12, msg=f"{name}, step {number}")
    assert step.steps_done == len(modes)
    assert sum("ModeCompiled" in str(warning.message) for warning in said) == 1


def zeroed(optimizer: Optimizer, *_: object) -> None:
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.detach().zero_()


@pytest.mark.parametrize("add", ["register_step_pre_hook", "register_step_post_hook"])
def test_a_hook_of_the_optimizer_is_refused(add: str) -> None:
    model = new_model()
    optimizer = SGD(model.parameters(), 0.1)
    step = compiled(model, optimizer)
    handle = getattr(optimizer, add)(zeroed)
    with pytest.raises(ModelChanged, match=r"optimizer\.hooks"):
        step(batch(0))
    handle.remove()
    step(batch(0))


def test_a_group_that_is_added_to_the_optimizer_is_refused() -> None:
    model = new_model()
    optimizer = SGD(model[0].parameters(), 0.1)
    step = compiled(model, optimizer)
    optimizer.add_param_group({"params": list(model[2].parameters())})
    with pytest.raises(ModelChanged, match=r"optimizer\.param_groups"):
        step(batch(0))


def test_what_is_set_back_is_no_change(recwarn: pytest.WarningsRecorder) -> None:
    model = new_model(dropout=0.5)
    step = compiled(model)
    handle = model[0].register_forward_hook(lambda *a: a[2] * 2)
    with torch.no_grad():
        model.eval()(*batch(3))
    with pytest.raises(ModelChanged):
        step(batch(0))
    handle.remove()
    model.train()
    for parameter in model.parameters():
        parameter.requires_grad_(False).requires_grad_(True)
    step(batch(0))
    assert not [w for w in recwarn if "ModelTracedAgain" in str(w.message)]


def test_a_change_that_the_program_does_not_depend_on_costs_one_trace() -> None:
    model, eager = new_model(), new_model()
    step = compiled(model)
    step(batch(0))
    train_eagerly(eager, 0)
    for number in (1, 2, 3):
        model.train(number == 2)
        model[1].epoch = number % 2
        if number == 1:
            with pytest.warns(UserWarning, match=r"\[ModelTracedAgain\] .*training .*same program"):
                loss = step(batch(number))
        else:
            loss = step(batch(number))
        assert torch.allclose(loss, train_eagerly(eager, number))


def test_a_hook_that_changes_nothing_costs_one_trace() -> None:
    model, shapes = new_model(), []
    step = compiled(model)
    model[0].register_forward_hook(lambda m, args, out: shapes.append(out.shape))
    with pytest.warns(UserWarning, match=r"0\._forward_hooks.*runs no Python"):
        step(batch(0))
    assert set(shapes) == {(6, 8)}


def train_eagerly(model: nn.Module, number: int) -> Tensor:
    optimizer = SGD(model.parameters(), 0.1)
    optimizer.zero_grad()
    loss = loss_of(model(*batch(number)), None)
    loss.backward()
    optimizer.step()
    return loss


def test_what_an_eager_forward_keeps_is_no_change(recwarn: pytest.WarningsRecorder) -> None:
    """A table of another length, made by an evaluation between two steps."""
    model = new_model()
    step = compiled(model)
    step(batch(0))
    model(torch.ones(2, 4, dtype=torch.float64))
    step(batch(1))
    assert not [w for w in recwarn if "ModelTracedAgain" in str(w.message)]


class Layer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Switching(nn.Module):
    """Its first forward puts another module in a module's place, with its parameters, as BigBird's does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.has_switched = Layer(nn.Linear(4, 2)), False

    def forward(self, x: Tensor) -> Tensor:
        if not self.has_switched:
            self.layer, self.has_switched = Layer(self.layer.inner), True
        return self.layer(x)


def test_a_module_that_the_forward_replaces_is_no_change(recwarn: pytest.WarningsRecorder) -> None:
    model = nn.Sequential(Switching()).double()
    step = compiled(model)
    model(*batch(2))
    step(batch(0))
    step(batch(1))
    assert not [w for w in recwarn if "ModelTracedAgain" in str(w.message)]


def test_verify_traces_twice() -> None:
    calls = []

    def growing(output: Tensor, _: object) -> Tensor:
        calls.append(None)
        return output.square().mean() * len(calls)

    model = new_model()
    with pytest.raises(shardc.diagnostics.ShardcError, match="FrozenValue"):
        shardc.compile_step(
            model, SGD(model.parameters(), 0.1), batch(0), mesh={"data": 1}, loss=growing, verify=True
        )
