"""Updates of parameters that are alike, traced once: the program is that of a trace of all of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import Proxy
from torch.fx.experimental.proxy_tensor import make_fx

from shardc.frontend.step import optimizer
from shardc.frontend.step.alike import PER_PARAMETER, AlikeUpdates, updates_alone
from shardc.frontend.step.capture import capture_step
from shardc.runtime.torch_private import FunctionalTensorMode, dispatch_functionalize

Make = Callable[[Any], torch.optim.Optimizer]


class Net(nn.Module):
    """Layers alike and unlike: other dtypes, a gradient with other strides, one that is constant, none."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.halves = nn.ModuleList([nn.Linear(4, 4).to(torch.bfloat16) for _ in range(2)])
        self.turned = nn.ParameterList([nn.Parameter(torch.randn(4, 4)) for _ in range(2)])
        self.summed = nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(2)])
        self.squared = nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(2)])
        self.unread = nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(2)])
        self.frozen = nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (*self.layers, self.frozen):
            x = layer(x).sin()
        for layer in self.halves:
            x = layer(x.to(torch.bfloat16)).float()
        for turned in self.turned:
            x = x @ turned.T
        return x.square().mean() + sum(s.sum() for s in self.summed) + sum(s @ s / 2 for s in self.squared)


def level1(make: Make, **options: Any) -> str:
    torch.manual_seed(0)
    model = Net()
    batch = torch.ones(2, 4)
    capture = capture_step(model, make(model.parameters()), batch, loss=lambda out, _: out, **options)
    return capture.module.operation.get_asm(assume_verified=True, enable_debug_info=True)


def in_two_groups(parameters: Any) -> torch.optim.Optimizer:
    held = list(parameters)
    groups = [{"params": held[::2], "weight_decay": 0.1}, {"params": held[1::2], "betas": (0.5, 0.9)}]
    return torch.optim.AdamW(groups, lr=0.1)


MADE: dict[str, Make] = {
    **{kind.__name__: partial(kind, lr=0.1) for kind in PER_PARAMETER},  # pyright: ignore[reportCallIssue]
    "decayed": partial(torch.optim.Adam, lr=0.1, weight_decay=0.1, amsgrad=True, maximize=True),
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.1),
    "rate that is a tensor": lambda p: torch.optim.SGD(p, lr=torch.tensor(0.1), momentum=0.9, nesterov=True),
    "centered": partial(torch.optim.RMSprop, lr=0.1, momentum=0.5, centered=True),
    "two groups": in_two_groups,
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_the_program_is_that_of_a_whole_trace(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = counted(monkeypatch)
    programs = []
    for are_copied in (True, False):
        monkeypatch.setattr(
            optimizer, "updates_alone", lambda made, held=are_copied: held and updates_alone(made)
        )
        programs.append(level1(make, clip_grad_norm=1.0))
        assert (len(copies) >= 4) == are_copied
        copies.clear()
    assert programs[0] == programs[1]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One item for each update that is copied from now on."""
    found: list[object] = []
    copy = AlikeUpdates._copied

    def counting(self: AlikeUpdates, *args: Any) -> Any:
        found.append(args)
        return copy(self, *args)

    monkeypatch.setattr(AlikeUpdates, "_copied", counting)
    return found


def adam() -> torch.optim.Optimizer:
    return torch.optim.Adam([nn.Parameter(torch.ones(2))])


class Own(torch.optim.Adam):
    """A class of a user."""


def test_only_pytorchs_own_code_updates_alone() -> None:
    assert updates_alone(adam())
    assert not updates_alone(Own([nn.Parameter(torch.ones(2))]))
    assert not updates_alone(torch.optim.LBFGS([nn.Parameter(torch.ones(2))]))


def test_a_scheduler_leaves_it_alone() -> None:
    made = adam()
    torch.optim.lr_scheduler.StepLR(made, 1)
    assert updates_alone(made)


@pytest.mark.parametrize("register", ["register_step_pre_hook", "register_step_post_hook"])
def test_hooks_may_see_all_parameters(register: str) -> None:
    made = adam()
    handle = getattr(made, register)(lambda *_: None)
    assert not updates_alone(made)
    handle.remove()
    assert updates_alone(made)
    of_all = getattr(sys.modules["torch.optim.optimizer"], register.replace("register", "register_optimizer"))
    handle = of_all(lambda *_: None)
    assert not updates_alone(made)
    handle.remove()


@pytest.mark.parametrize("name", ["_single_tensor_adam", "adam", "_to_scalar"])
def test_a_function_that_was_replaced_may_do_anything(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["torch.optim.adam"]

    @wraps(getattr(module, name))
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return None

    monkeypatch.setattr(module, name, replaced)
    assert not updates_alone(adam())
    assert not updates_alone(torch.optim.AdamW([nn.Parameter(torch.ones(2))]))
    assert updates_alone(torch.optim.SGD([nn.Parameter(torch.ones(2))]))


def test_a_method_that_was_replaced_may_do_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    made = adam()
    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.Adam, "_init_group", lambda *_: False)
        assert not updates_alone(made)
    assert updates_alone(made)
    monkeypatch.setattr(made, "_init_group", lambda *_: False)
    assert not updates_alone(made)


def test_names_that_dynamo_adds_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves them in the modules of an optimizer that it has compiled."""
    module = sys.modules["torch.optim.adam"]
    monkeypatch.setattr(module, "__compiled_fn_8", lambda: None, raising=False)
    assert updates_alone(adam())
    monkeypatch.setattr(module, "len", lambda _: 0, raising=False)
    assert not updates_alone(adam())


@pytest.mark.parametrize("is_number", [True, False])
def test_an_update_that_reads_what_is_not_its_own_is_not_copied(
    is_number: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = counted(monkeypatch)

    def step(x: torch.Tensor, y: torch.Tensor, other: torch.Tensor) -> list[torch.Tensor | Proxy]:
        alike = AlikeUpdates(lambda: [other] if is_number else [])
        return [*alike.run(0, [x], lambda: [x.sin() * other]), *alike.run(0, [y], lambda: [y.sin() * other])]

    tensors = [torch.ones(3), torch.full((3,), 2.0), torch.full((3,), 5.0)]
    graph = make_fx(dispatch_functionalize(step, FunctionalTensorMode()), tracing_mode="fake")(*tensors)
    assert len(copies) == is_number
    for made, tensor in zip(graph(*tensors), tensors[:2], strict=True):
        assert torch.equal(made, tensor.sin() * 5)


class Selected(nn.Module):
    """The gradient of ``table`` is cut out of one whose size depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[x[:, 0] > 0], self.table]).square().sum()


def test_gradients_of_sizes_that_depend_on_values() -> None:
    model = Selected()
    step = capture_step(model, torch.optim.SGD(model.parameters()), torch.ones(5, 4), loss=lambda out, _: out)
    assert ("param", "table") in {(spec.role, spec.name) for spec in step.results}


IN_A_NEW_PROCESS = """
import torch
from shardc.frontend.step.alike import PER_PARAMETER, updates_alone
for kind in PER_PARAMETER:
    for _ in range(2):
        assert updates_alone(kind([torch.nn.Parameter(torch.ones(2))], lr=0.1)), kind
"""


@pytest.mark.slow
def test_the_first_optimizer_of_a_process_updates_alone() -> None:
    """PyTorch puts wrappers around ``step`` when it makes the first of a class."""
    subprocess.run([sys.executable, "-c", IN_A_NEW_PROCESS], check=True)
