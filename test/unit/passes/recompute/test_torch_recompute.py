"""Recomputation outside of pipelines: equal to one device, what is kept, what is computed twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod

import pytest
import torch
from torch import Tensor, nn

import shardc
from shardc.backends.torch.memory.dry_run import Peak
from shardc.compiler.memory import step_peaks
from shardc.cost.work import flops
from shardc.diagnostics.passes.recompute import NeverCalled, NoRepeatedLayers, UnknownRecomputed
from shardc.dialects.aten.call import CallReader, is_constant
from shardc.options.recompute import Recompute
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import find_function
from shardc.step.compile_step import CompiledStep
from shardc.step.shard import Compiled

ROWS, WIDTH, LAYERS = 256, 16, 6
ONE = {"data": 1}


class Block(nn.Module):
    """A residual block whose last product is read by a norm, so that all of its forward is needed again."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm, self.drop = nn.LayerNorm(WIDTH), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm(self.drop(self.down(nn.functional.gelu(self.up(x)))))


class Outer(nn.Module):
    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Twice(Outer):
    """One layer that is called for each of several, as in ALBERT."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(LAYERS):
            x = self.layers[0](x)
        return self.head(x)


def compiled(
    recompute: Recompute | Sequence[str],
    mesh: Mapping[str, int] = ONE,
    plan: str = "data",
    model: type[Outer] = Outer,
    **options: object,
) -> CompiledStep:
    torch.manual_seed(0)
    made = model()
    batch = torch.randn(ROWS, WIDTH), torch.randn(ROWS, 4)
    optimizer = torch.optim.SGD(made.parameters(), 0.1)
    given = {"mesh": mesh, "plan": plan, "fuse": False, "recompute": recompute, **options}
    return shardc.compile_step(made, optimizer, batch, loss=nn.functional.mse_loss, **given)


@cache
def alone(recompute: Recompute) -> CompiledStep:
    return compiled(recompute)


def peak(step: CompiledStep) -> int:
    (found,) = step_peaks(step.compiled.program)
    assert isinstance(found, Peak)
    return found.size_bytes


def flops_of(program: Compiled, phase: str) -> float:
    """Of products in the rank's program that have a phase."""
    function, reader = find_function(program.rank_module), CallReader()
    assert function is not None
    ops = [view.operation for view in function.regions[0].blocks[0].operations]
    calls = [op for op in ops if op.name.startswith("torch.aten") and not is_constant(op)]
    return sum(flops(reader.read(op).spec) for op in calls if phase_of(op) == phase)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("recompute", ["full", "selective", ("layers.1", "layers.[34]"), ("*.norm",)])
def test_equal_to_one_device_under_dropout(recompute: Recompute) -> None:
    step = compiled(recompute)
    proof = step.check(steps=2)
    assert proof.passed, proof.render()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("recompute", ["full", "selective"])
def test_state_after_steps_is_the_same_to_the_bit(recompute: Recompute) -> None:
    torch.manual_seed(1)
    batch = torch.randn(ROWS, WIDTH), torch.randn(ROWS, 4)
    kept, again = compiled("none"), compiled(recompute)
    assert [float(kept(batch)) for _ in range(3)] == [float(again(batch)) for _ in range(3)]
    for (name, one), other in zip(kept.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(one.full_tensor(), other.full_tensor()), name


@pytest.mark.slow
def test_full_computes_one_forward_of_the_layers_again() -> None:
    none, full = alone("none").compiled, alone("full").compiled
    layers = LAYERS * 2 * (2 * ROWS * WIDTH * 4 * WIDTH)
    assert flops_of(none, "recompute") == 0
    assert flops_of(full, "recompute") == layers
    for phase in ("forward", "backward"):
        assert flops_of(full, phase) == flops_of(none, phase)
    assert flops_of(alone("selective").compiled, "recompute") == 0


@pytest.mark.slow
def test_full_keeps_the_inputs_of_layers() -> None:
    """A layer more costs its input and its parameters at the peak, the backward of the last layer."""
    one_input = ROWS * WIDTH * 4
    assert _made_at_peak(10, "full") - _made_at_peak(9, "full") == one_input
    assert _made_at_peak(10, "none") - _made_at_peak(9, "none") > 11 * one_input
    assert peak(alone("full")) < peak(alone("selective")) < peak(alone("none"))


def _made_at_peak(layers: int, recompute: Recompute) -> int:
    class Model(Outer):
        def __init__(self) -> None:
            super().__init__(layers)

    step = compiled(recompute, model=Model)
    held = [prod(spec.shape) * spec.dtype.itemsize for spec in step.compiled.capture.with_role("param")]
    return peak(step) - sum(held)


PLANS: dict[str, tuple[dict[str, int], str, dict[str, object]]] = {
    "data": ({"data": 2}, "data", {}),
    "zero3": ({"data": 2}, "zero3", {}),
    "zero3, micro-batches": ({"data": 2}, "zero3", {"micro_batches": 2}),
    "each micro-batch by itself": ({"data": 2}, "data", {"micro_batches": 2, "per_micro_batch": True}),
    "tensor": ({"tensor": 2}, "tensor", {}),
    "zero3 x sequence": ({"data": 2, "tensor": 2}, "zero3*sequence", {}),
    "pipeline, modules by name": ({"pipe": 2}, "pipeline", {"micro_batches": 2, "recompute": ["layers.*"]}),
    "kernels": (ONE, "data", {"fuse": True}),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", PLANS)
def test_in_every_plan(case: str) -> None:
    mesh, plan, options = PLANS[case]
    given = {"recompute": "full", **options}
    step = compiled(mesh=mesh, plan=plan, **given)
    proof = step.check(steps=2)
    assert proof.passed, proof.render()
    none = compiled(mesh=mesh, plan=plan, **{**given, "recompute": "none"})
    most, least = (max(_peaks(each)) for each in (none, step))
    assert least < most, case


def _peaks(step: CompiledStep) -> list[int]:
    return [found.size_bytes for found in step_peaks(step.compiled.program) if isinstance(found, Peak)]


@pytest.mark.slow
def test_each_call_of_a_module_is_one() -> None:
    """Its inputs are kept, of each call; the first call's would make a chain of all of them again."""
    none, full = compiled("none", model=Twice), compiled(["layers.0"], model=Twice)
    assert full.check().passed
    assert flops_of(full.compiled, "recompute") == LAYERS * 2 * (2 * ROWS * WIDTH * 4 * WIDTH)
    assert peak(full) < peak(none) / 2


@pytest.mark.parametrize(
    ("model", "recompute", "error", "message"),
    [
        (Outer, ["layer.*"], UnknownRecomputed, r"'layer.\*', which matches no module(.|\n)*layers"),
        (Outer, ["full"], UnknownRecomputed, "write none, full and selective alone"),
        (nn.Linear, "full", NoRepeatedLayers, "recompute='full' recomputes repeated layers"),
        (Twice, ["layers.3"], NeverCalled, "the forward calls none"),
    ],
)
def test_what_cannot_be_recomputed_is_named(
    model: type[nn.Module], recompute: Recompute, error: type[Exception], message: str
) -> None:
    made = model(WIDTH, 4) if model is nn.Linear else model()
    batch = torch.randn(ROWS, WIDTH), torch.randn(ROWS, 4)
    optimizer = torch.optim.SGD(made.parameters(), 0.1)
    with pytest.raises(error, match=message):
        shardc.compile_step(made, optimizer, batch, loss=nn.functional.mse_loss, recompute=recompute)
