"""Steps that cannot be traced end in an error of ours that names the op, the user's line and the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.frontend import (
    BatchUnsupported,
    BufferChangesShape,
    CtcLoss,
    DataDependent,
    LossNotFound,
    LossNotScalar,
    OptimizerParameterUnknown,
    OptimizerStateUnknown,
    OptimizerUnsupported,
    SizeDependsOnValues,
    SizeWithoutBound,
    SparseGradient,
    TraceFailed,
    UninitializedParameter,
    UnsupportedDtype,
)
from shardc.frontend.step.capture import capture_step

Loss = Callable[[torch.Tensor, Any], Any]


def capture(loss: Loss | None, batch: Any = None, optimizer: Any = torch.optim.SGD) -> None:
    model = nn.Linear(3, 2)
    batch = (torch.ones(4, 3),) if batch is None else batch
    before = model.weight.clone()
    try:
        capture_step(model, optimizer(model.parameters()), batch, loss=loss)
    finally:
        assert torch.equal(model.weight, before) and type(model.weight) is nn.Parameter
        assert not torch.compiler.is_compiling()


def data_dependent(out: torch.Tensor, batch: Any) -> torch.Tensor:
    return out.sum() if out.sum() > 0 else -out.sum()


LABEL, ONE = torch.tensor([[1]]), torch.tensor([1])
CASES: dict[str, tuple[type[ShardcError], Loss]] = {
    "if": (DataDependent, data_dependent),
    "item": (DataDependent, lambda out, _: sum(out[i].sum() for i in range(out.argmax().item()))),
    "nonzero": (DataDependent, lambda out, _: sum(out[i].sum() for i in (out[:, 0] > 0).nonzero())),
    "sort": (SizeDependsOnValues, lambda out, _: out[out > 0].sort().values.sum()),
    "no bound": (SizeDependsOnValues, lambda out, _: out.new_zeros(out.argmax().item()).sum() + out.sum()),
    "bincount": (SizeWithoutBound, lambda out, _: (out * torch.bincount(out.argmax(1), minlength=2)).sum()),
    "ctc": (CtcLoss, lambda out, _: F.ctc_loss(out[:, None].log_softmax(2), LABEL, torch.tensor([4]), ONE)),
    "float8": (UnsupportedDtype, lambda out, _: out.to(torch.float8_e4m3fn).to(out.dtype).sum() + out.sum()),
    "numpy": (TraceFailed, lambda out, _: out.sum() * float(np.asarray(out.detach()).sum())),
    "shapes": (TraceFailed, lambda out, _: (out @ out).sum()),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_untraceable_code_is_named_with_its_line(name: str) -> None:
    kind, loss = CASES[name]
    with pytest.raises(kind) as caught:
        capture(loss)
    assert caught.value.where is not None and __file__ in caught.value.where
    assert "try: " in str(caught.value)


@pytest.mark.parametrize(
    ("loss", "said", "advises"),
    [
        (lambda out, _: out.sum() * float(np.asarray(out.detach()).sum()), "numpy", True),
        (lambda out, _: (out @ out).sum(), "reduction dim", False),
        (lambda out, _: out.view_as().sum(), "positional argument", False),
        (lambda out, _: out.no_such_thing(), "AttributeError", False),
    ],
)
def test_out_of_place_functions_are_advised_where_tracing_is_in_the_way(
    loss: Loss, said: str, advises: bool
) -> None:
    with pytest.raises(TraceFailed) as caught:
        capture(loss)
    assert said in str(caught.value) and "work together without shardc" in str(caught.value)
    assert ("out-of-place" in str(caught.value)) is advises, caught.value


def test_an_error_is_not_logged_as_a_traceback_as_well(caplog: pytest.LogCaptureFixture) -> None:
    """PyTorch's fake tensors log each failed call."""
    with pytest.raises(TraceFailed):
        capture(lambda out, _: (out @ out).sum())
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_sparse_gradient_is_named() -> None:
    model = nn.Embedding(5, 3, sparse=True)
    with pytest.raises(SparseGradient, match="sparse=False") as caught:
        capture_step(model, torch.optim.SGD(model.parameters()), (torch.tensor([1, 2]),), loss=_sum)
    assert caught.value.where is not None


def test_buffer_of_8_bit_floats_is_named() -> None:
    model = nn.Linear(3, 2)
    model.register_buffer("scale", torch.ones(2).to(torch.float8_e5m2))
    with pytest.raises(UnsupportedDtype, match=r"scale has dtype torch\.float8_e5m2"):
        capture_step(model, torch.optim.SGD(model.parameters()), (torch.ones(4, 3),), loss=_sum)


def test_lazy_modules_have_to_be_called_first() -> None:
    model = nn.Sequential(nn.LazyLinear(2), nn.Tanh(), nn.LazyBatchNorm1d())
    optimizer = torch.optim.SGD(model.parameters())
    with pytest.raises(UninitializedParameter, match=r"0\.weight of a lazy module") as caught:
        capture_step(model, optimizer, (torch.ones(4, 3),), loss=_sum)
    assert caught.value.where is not None and __file__ in caught.value.where
    model(torch.ones(4, 3))
    capture_step(model, torch.optim.SGD(model.parameters()), (torch.ones(4, 3),), loss=_sum)


def test_state_that_starts_with_a_number_in_both_parts() -> None:
    """Rprop's step sizes of complex parameters start as lr + lr*j, which is no number of ours."""
    model = nn.Linear(3, 2, dtype=torch.complex64)
    optimizer = torch.optim.Rprop(model.parameters(), lr=0.1)
    with pytest.raises(OptimizerStateUnknown, match="'step_size'"):
        capture_step(model, optimizer, (torch.ones(4, 3, dtype=torch.complex64),), loss=_sum)


def _sum(out: torch.Tensor, _: object) -> torch.Tensor:
    return out.abs().sum()


def test_condition_on_a_constant_is_no_error() -> None:
    capture(lambda out, _: out.sum() if torch.arange(3).sum() > 2 else None)


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        (LossNotFound, None),
        (LossNotFound, lambda out, _: 3.0),
        (LossNotScalar, lambda out, _: out),
        (LossNotScalar, lambda out, _: out.detach().sum()),
        (LossNotScalar, lambda out, _: out.sum().long()),
    ],
)
def test_loss(kind: type[ShardcError], loss: Loss | None) -> None:
    with pytest.raises(kind):
        capture(loss)


@pytest.mark.parametrize(
    "batch",
    [
        {},
        (3, "x"),
        (torch.ones(4, 3), np.ones(3)),
        (torch.ones(4, 3).to_sparse(),),
        (torch.nested.nested_tensor([torch.ones(3)]),),
    ],
)
def test_batch(batch: Any) -> None:
    with pytest.raises(BatchUnsupported):
        capture(lambda out, _: out.sum(), batch)


def test_optimizer_of_another_model() -> None:
    other = nn.Linear(3, 2)
    with pytest.raises(OptimizerParameterUnknown, match="parameter 0 of group 0"):
        capture(lambda out, _: out.sum(), optimizer=lambda _: torch.optim.SGD(other.parameters(), lr=0.1))


@pytest.mark.parametrize("kind", [torch.optim.LBFGS, torch.optim.Adafactor])
def test_optimizer_that_calls_back_or_reads_values(kind: type[torch.optim.Optimizer]) -> None:
    with pytest.raises(OptimizerUnsupported, match=kind.__name__):
        capture(lambda out, _: out.sum(), optimizer=kind)


class Lookahead(torch.optim.Optimizer):
    """Home-made, with state that shardc can't know the start of."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                if not state:
                    state["slow"] = param.clone()
                param.sub_(param.grad, alpha=group["lr"])
                state["slow"].lerp_(param, 0.5)


def test_home_made_optimizer_needs_state_first() -> None:
    with pytest.raises(OptimizerStateUnknown, match="'slow'"):
        capture(lambda out, _: out.sum(), optimizer=Lookahead)


def test_home_made_optimizer_with_state_is_traced() -> None:
    model = nn.Linear(3, 2)
    optimizer = Lookahead(model.parameters())
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    captured = capture_step(model, optimizer, (torch.ones(4, 3),), loss=lambda out, _: out.sum())
    assert [s.name for s in captured.with_role("opt_state")] == ["weight/slow", "bias/slow"]
    assert captured.initial_values()["opt_state", "bias/slow"] is optimizer.state[model.bias]["slow"]


def test_parameter_behind_another_reference() -> None:
    model = nn.Linear(3, 2)
    weights = [model.weight]
    with pytest.raises(TraceFailed, match=r"weight is read through a reference(.|\n)*try: read it as the"):
        capture_step(
            model,
            torch.optim.SGD(model.parameters()),
            (torch.ones(4, 3),),
            loss=lambda out, _: out.sum() + weights[0].detach().sum(),
        )


class Remembers(nn.Module):
    """Keeps all that it has seen in a buffer, or a table of positions as long as the longest batch."""

    def __init__(self, table: bool) -> None:
        super().__init__()
        self.linear, self.table = nn.Linear(3, 3), table
        self.register_buffer("kept", torch.zeros(1, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.table:
            self.kept = torch.cat([self.kept, x.detach()])
        elif len(self.kept) < len(x):
            self.kept = torch.arange(3.0 * len(x)).view(len(x), 3)
        return (self.linear(x) * self.kept[: len(x)]).square().sum()


def test_buffer_that_grows() -> None:
    model = Remembers(table=False)
    with pytest.raises(BufferChangesShape, match=r"kept has shape \[1, 3\] before a step and \[5, 3\] after"):
        capture_step(model, torch.optim.SGD(model.parameters()), (torch.ones(4, 3),))


def test_table_that_is_made_longer_stays_as_it_came() -> None:
    model = Remembers(table=True)
    found = capture_step(model, torch.optim.SGD(model.parameters()), (torch.ones(4, 3),))
    (buffer,) = [spec for spec in found.results if spec.role == "buffer"]
    assert buffer.shape == (1, 3)
    values = [torch.ones(spec.shape, dtype=spec.dtype) for spec in found.arguments]
    assert torch.equal(found.graph(*values)[-1], torch.ones(1, 3))


def test_distribution_is_not_asked_whether_its_parameters_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    # The default is PyTorch's own, which Dynamo turns off for the rest of a process that has used it.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    capture(lambda out, _: torch.distributions.Categorical(logits=out).entropy().sum())
    with pytest.raises(ValueError, match="invalid values"):
        torch.distributions.Categorical(logits=torch.full((2,), torch.nan))
