"""Recomputation in stages: equal to one device under dropout, and the saved memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import get_args

import pytest
from models import Training, gpt2, sgd, tokens
from pipelines import PIPELINED
from torch_mlir import ir
from training import Captured, capture

from shardc.backends.eager.proof.compare import prove_step
from shardc.dialects.pipe.kept import MODULES
from shardc.options.parallelism import Parallelism
from shardc.options.pipeline import Pipeline
from shardc.options.recompute import Policy, Recompute
from shardc.passes.manager.program import program_functions
from shardc.report.memory_text import explain_pipeline
from shardc.report.pipeline_report import PipelineReport
from shardc.runtime.kernels.library import Library
from shardc.step.fuse_step import fuse_step
from shardc.step.modules.recomputed import recomputed
from shardc.step.shard import Compiled
from shardc.step.values import example_inputs

DROPOUT = Training(partial(gpt2, dropout=0.2), tokens, sgd)


@pytest.fixture(scope="module")
def dropout() -> Captured:
    return capture(DROPOUT)


def report(compiled: Compiled) -> PipelineReport:
    found = explain_pipeline(compiled.program)
    assert found is not None
    return found


def prove(step: Captured, compiled: Compiled) -> None:
    inputs = example_inputs(step.capture, step.optimizer, DROPOUT.batches(1)[0])
    library = None if compiled.library is None else Library(compiled.library)
    proof = prove_step(compiled.global_module, compiled.program, inputs, steps=2, library=library)
    assert proof.passed, proof.render()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schedule", "recompute"),
    [("1f1b", "none"), ("1f1b", "full"), ("1f1b", "selective"), ("zb-h1", ("full", "selective"))],
)
def test_dropout_is_drawn_again_as_it_was(dropout: Captured, schedule: str, recompute: Recompute) -> None:
    mesh, options = {"pipe": 2, "tensor": 2}, Pipeline(schedule)
    compiled = dropout.compile(mesh, "pipeline*tensor", 4, options, recompute)
    prove(dropout, compiled)
    again = [
        ir.StringAttr(function.attributes["sym_name"]).value
        for function in program_functions(compiled.program)
        for op in (view.operation for view in function.regions[0].blocks[0].operations)
        if "dist.phase" in op.attributes and op.attributes["dist.phase"].value == "recompute"
    ]
    assert all(name.endswith(("_B", "_I", "_W")) for name in again)
    assert bool(again) is (recompute != "none")


@pytest.mark.slow
def test_recomputation_in_kernels(dropout: Captured) -> None:
    compiled = dropout.compile({"pipe": 2}, "pipeline", 4, recompute="selective")
    fuse_step(compiled)
    prove(dropout, compiled)


@pytest.mark.slow
def test_what_stages_keep(dropout: Captured) -> None:
    """Of GPT-2 in two stages; that of the second has the tied head and the loss."""
    policies: tuple[Policy, ...] = get_args(Policy)
    found = {what: report(dropout.compile({"pipe": 2}, "pipeline", 4, recompute=what)) for what in policies}
    for stage in range(2):
        none, full, selective = (found[what].kept[stage] for what in ("none", "full", "selective"))
        assert none.kept_bytes == none.before_bytes == full.before_bytes == selective.before_bytes
        assert full.kept_bytes < selective.kept_bytes < none.kept_bytes / 2
    first, second = found["full"].kept
    assert first.kept_bytes == 0  # its inputs are part of the batch
    assert (first.in_flight, second.in_flight) == (2, 1)
    hidden = 2 * 16 * 32 * 8  # a micro-batch of two sequences, in f64
    assert second.kept_bytes == hidden  # the residual
    saved = found["none"].kept[0].kept_bytes * 2
    peaks = {what: of.ranks[0].peak_bytes or 0 for what, of in found.items()}
    assert (
        peaks["none"] - peaks["full"] > saved / 3
    )  # the rest is needed while one micro-batch is computed again
    assert peaks["full"] < peaks["selective"] < peaks["none"]


@pytest.fixture(scope="module")
def layered() -> Captured:
    """Two layers of GPT-2 that backward recomputes."""
    options = Parallelism({"pipe": 2}, "pipeline", recompute="full")
    return capture(DROPOUT, noted=recomputed(DROPOUT.fresh(), options))


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["transformer.h.1", "transformer.h.1.mlp", "transformer.h.1.mlp.c_proj"])
@pytest.mark.parametrize(("mesh", "plan"), [({}, "pipeline"), ({"data": 2}, "pipeline*zero3")])
def test_a_recomputed_layer_may_be_cut(
    dropout: Captured, layered: Captured, cut: str, mesh: dict[str, int], plan: str
) -> None:
    """Stages hold the same state as without recomputation, and send at most as much."""
    mesh, options = {"pipe": 2, **mesh}, Pipeline(stages=(cut,))
    kept = report(dropout.compile(mesh, plan, 4, options))
    compiled = layered.compile(mesh, plan, 4, options, "full")
    again = report(compiled)
    assert [rank.state_bytes for rank in again.ranks] == [rank.state_bytes for rank in kept.ranks]
    assert all(
        mine.sent_bytes <= theirs.sent_bytes for mine, theirs in zip(again.ranks, kept.ranks, strict=True)
    )
    assert {stage.recompute for stage in again.kept} == {MODULES}
    if cut == "transformer.h.1":  # within layers, other stages run some gradients
        for stage, before in zip(again.kept, kept.kept, strict=True):
            assert stage.kept_bytes < before.kept_bytes / 8
            assert stage.before_bytes == pytest.approx(before.before_bytes, rel=0.01)
    prove(layered, compiled)


@pytest.mark.slow
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("preset", ["zero2", "zero3"])
def test_a_tied_weight_is_sent_once(
    dropout: Captured, layered: Captured, preset: str, recompute: Recompute
) -> None:
    """Each stage gathers it, and sums its gradients in its own shard."""
    step = dropout if recompute == "none" else layered
    mesh, options = {"pipe": 2, "data": 2}, Pipeline(stages=("transformer.h.1",))
    compiled = step.compile(mesh, f"pipeline*{preset}", 4, options, recompute)
    hidden, table = 4 * 16 * 32 * 8, 64 * 32 * 8 // 2
    sent = [rank.sent_bytes for rank in report(compiled).ranks]
    assert sent == [pytest.approx(hidden + table, abs=8)] * 2
    prove(step, compiled)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["full", "selective"])
@pytest.mark.parametrize("schedule", ["zb-h1", "interleaved"])
def test_layers_under_other_schedules(layered: Captured, policy: Recompute, schedule: str) -> None:
    """A split backward, and stages that begin within layers."""
    options = Pipeline(schedule, stages=4 if schedule.startswith("inter") else None)
    prove(layered, layered.compile({"pipe": 2}, "pipeline", 4, options, policy))


def test_what_layers_keep_is_counted_once() -> None:
    """Linear layers with gelu: the input of each (but the batch's part), and what goes into gelu; no view of
    these.
    """
    training = replace(PIPELINED["tower"], optimizer=sgd)
    options = Pipeline(stages=("layers.4",))
    compiled = capture(training).compile({"pipe": 2}, "pipeline", 4, options)
    activation = 4 * 64 * 8
    assert [stage.kept_bytes for stage in report(compiled).kept] == [7 * activation, 9 * activation]
