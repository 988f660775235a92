"""Stages with kernels and packed collectives: the kernels' bodies in f64, and the compiled kernels, against
one device.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
from models import TRAININGS, Training, gpt2, llama, sgd, tokens
from pipelines import PIPELINED, PipelineRanks
from torch_mlir import ir
from training import BOUND, Captured, capture, errors, train_eagerly

from shardc.backends.body.extract import extract, kernel_name, kernels
from shardc.backends.eager.proof.compare import prove_step
from shardc.commands.check import check_artefact
from shardc.commands.explain import explain
from shardc.commands.explain_fusion import explain_path
from shardc.options.pipeline import Pipeline
from shardc.passes.manager.program import program_functions
from shardc.passes.pipeline.pipe_cut import cut_pipeline
from shardc.runtime.kernels.library import Library
from shardc.step.compile_step import compile_step
from shardc.step.fuse_step import fuse_step
from shardc.step.shard import Compiled
from shardc.step.values import example_inputs


@dataclass(frozen=True)
class Case:
    """With SGD, not Adam: its steps are as far off as its gradients."""

    training: Training
    mesh: dict[str, int]
    plan: str
    options: Pipeline = field(default_factory=Pipeline)
    micro_batches: int = 4


CASES = {
    "llama": Case(TRAININGS["llama"], {"pipe": 2, "tensor": 2}, "pipeline*tensor"),
    "llama-3d": Case(
        TRAININGS["llama"],
        {"pipe": 2, "data": 2, "tensor": 2},
        "pipeline*zero3*sequence",
        Pipeline("interleaved"),
        2,
    ),
    "t5": Case(PIPELINED["t5"], {"pipe": 2, "data": 2}, "pipeline*data", Pipeline("zb-h1")),
    "gpt2": Case(
        Training(partial(gpt2, dropout=0.2), tokens),
        {"pipe": 2, "data": 2},
        "pipeline*zero1",
        Pipeline("interleaved"),
    ),
    "skips": Case(PIPELINED["skips"], {"pipe": 2}, "pipeline", Pipeline("zb-v")),
    "unet": Case(PIPELINED["unet"], {"pipe": 2}, "pipeline", Pipeline(stages=("up",))),
}


def fused(step: Captured, case: Case) -> tuple[Compiled, Library]:
    compiled = step.compile(case.mesh, case.plan, case.micro_batches, case.options)
    fuse_step(compiled)
    assert compiled.library is not None
    return compiled, Library(compiled.library)


def functions_of(module: ir.Module) -> dict[str, ir.Operation]:
    """The stages and the ranks' functions by name."""
    return {ir.StringAttr(op.attributes["sym_name"]).value: op for op in program_functions(module)}


def ops_in(function: ir.Operation, name: str) -> list[ir.Operation]:
    ops = (view.operation for view in function.regions[0].blocks[0].operations)
    return [op for op in ops if op.name == name]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_equals_the_program_of_one_device(name: str) -> None:
    case = CASES[name]
    step = capture(replace(case.training, optimizer=sgd))
    compiled, library = fused(step, case)
    functions = functions_of(compiled.program)
    having = [name for name, op in functions.items() if ops_in(op, "kern.kernel")]
    assert len(having) > len(functions) / 2 and all(
        name in having for name in functions if name.startswith("step")
    )
    inputs = example_inputs(step.capture, step.optimizer, case.training.batches(1)[0])
    proof = prove_step(compiled.global_module, compiled.program, inputs, steps=2, library=library)
    assert proof.passed, proof.render()


@pytest.mark.slow
def test_stages_with_kernels_train_as_eager_does() -> None:
    training = replace(TRAININGS["llama"], optimizer=sgd)
    step, case = capture(training), CASES["llama"]
    compiled, _ = fused(step, replace(case, mesh={"pipe": 2}, plan="pipeline"))
    found, spread = PipelineRanks(step, compiled.program).train(training.batches(2))
    for ours, theirs in zip(found, train_eagerly(training, 2), strict=True):
        assert max(errors(ours, theirs).values()) <= BOUND
    assert spread == 0


@pytest.mark.slow
def test_equal_stages_share_their_kernels() -> None:
    """Four layers, a stage each: those in the middle run the same kernels, each compiled once."""
    cuts = tuple(f"model.layers.{n}" for n in (1, 2, 3))
    training = Training(partial(llama, num_hidden_layers=4), tokens, sgd)
    compiled, _ = fused(capture(training), Case(training, {"pipe": 4}, "pipeline", Pipeline("zb-h1", cuts)))
    functions = functions_of(compiled.program)
    names = {name: [kernel_name(op) for op in ops_in(op, "kern.kernel")] for name, op in functions.items()}
    for kind in "FI":
        assert names[f"stage_1_{kind}"] == names[f"stage_2_{kind}"] != []
    assert names["step_1"] == names["step_2"] != []
    once = [ir.StringAttr(f.operation.attributes["sym_name"]).value for f in extract(compiled.program).body]
    assert sorted(once) == sorted(set(map(kernel_name, kernels(compiled.program))))


KINDS = ("dist.all_reduce", "dist.all_gather", "dist.reduce_scatter")


def collectives(function: ir.Operation) -> int:
    return sum(len(ops_in(function, kind)) for kind in KINDS)


PACKED = {
    "pipeline*zero3": ["stage_0_F", "stage_0_B", "stage_1_F", "stage_1_B"],
    "pipeline*data": ["stage_0_REDUCE_GRAD", "stage_1_REDUCE_GRAD"],
}
"""Where there are many: ZeRO-3 gathers the parameters of a stage in each micro-batch; without it gradients
are reduced behind the last, an action of each stage.
"""


@pytest.mark.slow
@pytest.mark.parametrize("plan", PACKED)
def test_collectives_are_packed(plan: str) -> None:
    compiled = capture(TRAININGS["llama"]).compile({"pipe": 2, "data": 2}, plan, 4)
    assert compiled.pipeline_module is not None
    packed = functions_of(compiled.pipeline_module)
    cut_pipeline(compiled.rank_module, "pipe", Pipeline())
    apart = functions_of(compiled.rank_module)
    for name in PACKED[plan]:
        assert collectives(apart[name]) >= 9
        assert collectives(packed[name]) <= 3


@pytest.mark.slow
def test_an_artefact_explains_its_pipeline(tmp_path: Path) -> None:
    training = PIPELINED["tower"]
    model, (batch,) = training.fresh(), training.batches(1)
    options = {"mesh": {"pipe": 2}, "plan": "pipeline", "micro_batches": 4, "recompute": "full"}
    step = compile_step(model, sgd(model), batch, loss=training.loss, **options)
    step.save(tmp_path / "out")
    assert (tmp_path / "out" / "kernels.so").is_file()
    text = explain(tmp_path / "out")
    assert "peak of a device" in text and "activations that a stage keeps for backward" in text
    assert [line.split()[:2] for line in text.splitlines() if " full " in line] == [
        ["0", "full"],
        ["1", "full"],
    ]
    assert "kernels replace" in explain_path(tmp_path / "out")
    assert check_artefact(tmp_path / "out", 1).passed
