"""Gradients that are zero in exact arithmetic: errors are relative to the summed terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch_mlir import ir

from shardc.backends.eager.interpreter import run
from shardc.backends.eager.proof.compare import prove_step
from shardc.backends.eager.proof.summed import with_summed
from shardc.step.compile_step import CompiledStep, compile_step
from shardc.step.values import example_inputs

OPTIMIZERS: dict[str, Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}


@cache
def compiled(images: bool = False, optimizer: str = "sgd") -> CompiledStep:
    """A layer's bias before a batch norm, whose gradient is zero; enough samples to see the rounding."""
    torch.manual_seed(0)
    if images:
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 3, 1))
        batch = (torch.randn(16, 3, 32, 32),)
    else:
        model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
        batch = (torch.randn(4096, 16) + 3,)
    return compile_step(
        model,
        OPTIMIZERS[optimizer](model.parameters()),
        batch,
        loss=lambda output, _: output.square().mean() + output.mean(),
        mesh={"data": 4},
        plan="data",
        fuse=False,
    )


def inputs_of(step: CompiledStep) -> dict[tuple[str, str], Tensor]:
    return example_inputs(step.compiled.capture, step._optimizer, step._batch)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("images", [False, True], ids=["rows", "images"])
def test_a_gradient_that_is_zero_in_exact_arithmetic_is_equal(images: bool, optimizer: str) -> None:
    proof = compiled(images, optimizer).check()
    assert proof.passed, proof.render()
    (row, *_) = [row for row in proof.own.rows if (row.role, row.name) == ("grad", "0.bias")]
    assert 0 < row.error < row.bound  # rounding errors there are


@pytest.mark.parametrize(("part", "precise"), [(1 + 1e-6, True), (1 + 1e-2, False)], ids=["1e-6", "1e-2"])
def test_a_wrong_gradient_that_is_small_is_refused(part: float, precise: bool) -> None:
    """The mean that batch norm's backward takes off is off by so much: what should cancel does not."""
    step = compiled()
    text, inverse = str(step.compiled.program), 1 / 4096
    assert text.count(f"{inverse:.8E}".replace("E-04", "E-4")) == 1
    wrong = text.replace(f"{inverse:.8E}".replace("E-04", "E-4"), f"{inverse * part:.14E}")
    module = ir.Module.parse(wrong, step.compiled.program.context)
    proof = prove_step(step.compiled.global_module, module, inputs_of(step))
    for outcome in (proof.exact,) if precise else (proof.exact, proof.own):
        failing = {(row.role, row.name) for row in outcome.failures if row.step == 0}
        assert ("grad", "0.bias") in failing, outcome.render()


@pytest.mark.parametrize("images", [False, True], ids=["rows", "images"])
def test_what_is_summed_is_the_sum_of_magnitudes(images: bool) -> None:
    """Of a weight of a norm, which is no plain sum, there is none."""
    step = compiled(images)
    module = with_summed(step.compiled.global_module, ["0.bias", "3.bias", "0.weight", "1.weight"])
    assert module.operation.verify()
    seen: dict[str, Tensor] = {}
    inputs = inputs_of(step)
    run(module, [[t] for t in inputs.values()], widen=True, observe=lambda n, v, _: seen.update({n: v[0]}))
    assert {name for name in seen if name.startswith("summed:")} == {
        "summed:0.bias",
        "summed:3.bias",
        "summed:0.weight",
    }
    for name in ("0.bias", "3.bias", "0.weight"):
        assert seen[f"summed:{name}"].shape == seen[f"grad:{name}"].shape
        assert bool((seen[f"summed:{name}"] >= seen[f"grad:{name}"].abs()).all())
    assert float(seen["summed:0.bias"].max()) > 1e6 * float(seen["grad:0.bias"].abs().max())


def test_magnitudes_are_those_of_pytorchs_terms() -> None:
    """The last bias gets a term from each sample."""
    step = compiled()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1)).double()
    output = model(step._batch[0].double())  # type: ignore[index]
    output.retain_grad()
    (output.square().mean() + output.mean()).backward()
    module, inputs = with_summed(step.compiled.global_module, ["3.bias"]), inputs_of(step)
    seen: dict[str, Tensor] = {}
    run(module, [[t] for t in inputs.values()], widen=True, observe=lambda n, v, _: seen.update({n: v[0]}))
    assert output.grad is not None
    torch.testing.assert_close(seen["summed:3.bias"], output.grad.abs().sum(0), rtol=1e-9, atol=0)
