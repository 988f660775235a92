"""Pipelines whose ranks keep activations for others: equal to one device, with a lower peak."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from models import Training, sgd, sum_of_squares
from pipelines import Tower, captured, check_pipeline
from torch_mlir import ir
from training import Captured, capture

from shardc.backends.eager.proof.compare import prove_step
from shardc.backends.torch.emit import emit_program
from shardc.compiler.memory import step_peaks
from shardc.diagnostics.dialects.levels import RankProgramBroken
from shardc.diagnostics.passes.pipeline import NoCutFits, ScheduleNotYet
from shardc.dialects.pipe.kept import read_kept
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.options.pipeline import Pipeline
from shardc.options.recompute import Recompute
from shardc.passes.pipeline.checks.check_rank_programs import check_rank_programs
from shardc.passes.pipeline.pipe_cut import cut_into_stages
from shardc.passes.pipeline.schedules.balance_activations import balance_activations, evict_within
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.report.memory_text import explain_pipeline
from shardc.runtime.kernels.library import Library
from shardc.step.fuse_step import fuse_step
from shardc.step.shard import Compiled
from shardc.step.values import example_inputs

TOWER = Training(Tower, lambda: (torch.randn(1024, 64),), sgd, sum_of_squares)
"""What a layer keeps of a micro-batch is more than its weights."""
BALANCED = Pipeline(balance_activations=True)
FULL_FIRST = ("layers.3", "layers.5", "layers.7")


@pytest.fixture(scope="module")
def tower() -> Captured:
    return capture(TOWER)


def balanced(name: str, ranks: int, micro_batches: int) -> Schedule:
    """A schedule with evictions; where ranks hold equally many, the first stage is said to keep more."""
    per_rank = {"interleaved": 2, "zb-v": 2}.get(name, 1)
    plain = by_name(name, ranks * per_rank, micro_batches, ranks=ranks)
    kept = [5.0] + [1.0] * (ranks * per_rank - 1)
    found = balance_activations(plain)
    found = found if found.evictions else evict_within(plain, kept, [0.0] * ranks, 0.0)
    assert found.evictions
    return found


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("schedule", "ranks"),
    [("1f1b", 4), ("1f1b", 6), ("interleaved", 4), ("zb-h1", 4), ("zb-v", 4), ("fill-drain", 2)],
)
def test_a_pipeline_with_evictions_equals_one_device(schedule: str, ranks: int) -> None:
    made = balanced(schedule, ranks, 2 * ranks)
    module = captured("skips").compile({"pipe": ranks}, {}, made.micro_batches).rank_module
    cut_into_stages(module, made, "pipe")
    op = find_schedule(module)
    assert op is not None and read_schedule(op) == made
    check_pipeline("skips", module)
    text = emit_program(module)
    assert text.count("EVICT") == text.count("LOAD") == 2 * len(made.evictions)


def peaks(compiled: Compiled) -> list[int]:
    return [peak.size_bytes for peak in step_peaks(compiled.program)]


def evictions(compiled: Compiled) -> Schedule:
    assert compiled.pipeline_module is not None
    op = find_schedule(compiled.pipeline_module)
    assert op is not None
    return read_schedule(op)


def prove(step: Captured, compiled: Compiled) -> None:
    inputs = example_inputs(step.capture, step.optimizer, TOWER.batches(1)[0])
    library = None if compiled.library is None else Library(compiled.library)
    proof = prove_step(compiled.global_module, compiled.program, inputs, steps=2, library=library)
    assert proof.passed, proof.render()


def test_the_first_rank_needs_less(tower: Captured) -> None:
    plain, ours = (tower.compile({"pipe": 4}, "pipeline", 8, options) for options in (Pipeline(), BALANCED))
    before, after = peaks(plain), peaks(ours)
    assert ours.pipeline_module is not None
    assert before[0] - after[0] == read_kept(ours.pipeline_module)[0].size_bytes  # of a micro-batch
    assert max(after) < max(before)
    report = explain_pipeline(ours.program)
    assert report is not None
    assert report.evicted == ["rank 0 keeps activations on rank 3: 4 times a step, 524.3 kB"]
    assert after[1:3] == before[1:3] and after[3] > before[3]


@pytest.mark.parametrize("recompute", ["none", "selective"])
def test_a_limit_evicts_as_few_as_needed(tower: Captured, recompute: Recompute) -> None:
    def compiled(limit: float) -> Compiled:
        options = replace(BALANCED, memory_limit_bytes=limit, stages=FULL_FIRST)
        return tower.compile({"pipe": 4}, "pipeline", 8, options, recompute=recompute)

    with pytest.raises(NoCutFits) as caught:
        compiled(1000)
    least = caught.value.fields["least"]
    full = len(evictions(compiled(least)).evictions)
    some = len(evictions(compiled(1.05 * least)).evictions)
    assert full >= some > 0
    assert not evictions(compiled(1e9)).evictions
    with pytest.raises(NoCutFits) as alone:
        options = Pipeline(memory_limit_bytes=least, stages=FULL_FIRST)
        tower.compile({"pipe": 4}, "pipeline", 8, options, recompute=recompute)
    assert alone.value.fields["least"] > least


def test_beside_data_parallelism_and_with_kernels(tower: Captured) -> None:
    """The partner is the device with the same place on the other axes."""
    compiled = tower.compile({"pipe": 4, "data": 2}, "pipeline*data", 8, BALANCED, recompute="selective")
    fuse_step(compiled)
    assert evictions(compiled).evictions
    prove(tower, compiled)


@pytest.mark.parametrize("schedule", ["terapipe", "pipedream", "chimera"])
def test_what_keeps_no_whole_micro_batches_is_refused(tower: Captured, schedule: str) -> None:
    options = replace(BALANCED, schedule=schedule, stale_weights=True)
    with pytest.raises(ScheduleNotYet, match="balance_activations=True moves whole micro-batches"):
        tower.compile({"pipe": 4}, "pipeline", 4, options)


def test_activations_of_another_micro_batch_are_noticed(tower: Captured) -> None:
    """Two evictions change places on both sides, so that the messages still match."""
    compiled = tower.compile({"pipe": 4}, "pipeline", 8, BALANCED)
    text = str(compiled.pipeline_module)
    swapped = text.replace('"0EVICT1"', '"x"').replace('"0EVICT3"', '"0EVICT1"').replace('"x"', '"0EVICT3"')
    assert swapped != text
    with compiled.pipeline_module.context:
        module = ir.Module.parse(swapped)
    check_rank_programs(compiled.pipeline_module)
    with pytest.raises(RankProgramBroken, match="another micro-batch's"):
        check_rank_programs(module)
