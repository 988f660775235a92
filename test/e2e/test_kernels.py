"""Rank programs with fused kernels against eager training: the kernels' bodies in f64 to 1e-9,
and the compiled kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from models import TRAININGS, Training, gpt2, sgd, tokens
from training import Captured, Ranks, capture, check_equal, check_trained, train_eagerly

from shardc.backends.cpu.target import CpuTarget
from shardc.backends.eager.proof.compare import prove_step
from shardc.backends.torch.description import describe_kernels
from shardc.backends.torch.emit import emit_program
from shardc.compiler.compilation import region_choice
from shardc.compiler.measured_regions import MeasuredRegions
from shardc.passes.fuse.grouping import region
from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.grouping.region import Verdict
from shardc.runtime.kernels.library import Library
from shardc.step.fuse_step import fuse_step, step_options
from shardc.step.shard import Compiled
from shardc.step.values import example_inputs

TWO, GRID = {"data": 2}, {"data": 2, "tensor": 2}


@dataclass(frozen=True)
class Case:
    """With SGD, not Adam: its steps are as far off as its gradients. ``bound``: of the compiled program,
    which computes in f32 where the model asks for it.
    """

    model: str
    mesh: dict[str, int]
    plan: str
    micro_batches: int = 1
    bound: float = 1e-5


CASES = [
    Case("llama", GRID, "zero3*tensor"),
    Case("gpt2", GRID, "data*tensor"),
    Case("t5", GRID, "zero3*tensor", 2),
    Case("convnet", TWO, "data", bound=1e-9),
]


def fused(
    step: Captured, mesh: dict[str, int], plan: str, micro_batches: int = 1
) -> tuple[Compiled, Library]:
    compiled = step.compile(mesh, plan, micro_batches)
    fuse_step(compiled)
    assert compiled.library is not None
    return compiled, Library(compiled.library)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.model}-{case.plan}")
def test_equals_eager_training(case: Case) -> None:
    training = replace(TRAININGS[case.model], optimizer=sgd)
    step = capture(training)
    compiled, library = fused(step, case.mesh, case.plan, case.micro_batches)
    assert sum(k["calls"] * len(k["ops"]) for k in describe_kernels(compiled.program)) > 100
    check_equal(step, compiled, training, train_eagerly(training))
    ranks = Ranks(step, compiled.program, widen=False, library=library)
    check_trained(ranks, training, train_eagerly(training, wide=False), case.bound)


def in_f32(training: Training) -> Training:
    """Libraries have no f64."""
    return replace(training, model=lambda: training.model().float())


@pytest.mark.slow
def test_matmuls_of_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if oneDNN had won every benchmark. In f64 the oracle computes what its operator means."""
    training = in_f32(TRAININGS["llama"])
    step = capture(training)
    monkeypatch.setattr("shardc.backends.cpu.contractions.measured_form", lambda contraction: "onednn")
    compiled, library = fused(step, GRID, "zero3*tensor")
    assert emit_program(compiled.program).count("_linear_pointwise(") > 20
    inputs = example_inputs(step.capture, step.optimizer, training.batches(1)[0])
    proof = prove_step(compiled.global_module, compiled.program, inputs, library=library)
    assert proof.passed, proof.render(5)


@pytest.mark.slow
def test_matmuls_in_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if they had won every benchmark."""
    training = TRAININGS["llama"]
    step = capture(training)
    monkeypatch.setattr(region, "SMALL_FLOPS", 0)
    monkeypatch.setattr(MeasuredRegions, "__call__", lambda self, region: Verdict(True, ""))
    compiled, library = fused(step, GRID, "zero3*tensor")
    assert " = mm(" not in emit_program(compiled.program)
    inputs = example_inputs(step.capture, step.optimizer, training.batches(1)[0])
    proof = prove_step(compiled.global_module, compiled.program, inputs, library=library)
    assert proof.passed, proof.render(5)


@pytest.mark.parametrize(("world", "local", "measured"), [(None, None, True), (4, 4, True), (8, 4, False)])
def test_hosts_do_not_choose_apart(
    monkeypatch: pytest.MonkeyPatch, world: int | None, local: int | None, measured: bool
) -> None:
    for name, value in (("WORLD_SIZE", world), ("LOCAL_WORLD_SIZE", local)):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, str(value))
    options = step_options(CpuTarget(), "fused", "auto", FusionConstraints())
    assert options.libraries == options.tuned == (options.device is not None) == measured
    choice = region_choice(CpuTarget(), options)
    assert isinstance(choice, MeasuredRegions) if measured else choice == "extern"


def checkpointed() -> Any:
    model = gpt2(dropout=0.2)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


@pytest.mark.slow
def test_dropout_and_recomputation() -> None:
    """Random numbers are part of the kernels, and are the single device's on every mesh,
    in forward and again in backward.
    """
    training = Training(checkpointed, tokens)
    step = capture(training)
    compiled, library = fused(step, GRID, "zero3*tensor", 2)
    inputs = example_inputs(step.capture, step.optimizer, training.batches(1)[0])
    proof = prove_step(compiled.global_module, compiled.program, inputs, library=library)
    assert proof.passed, proof.render(5)
