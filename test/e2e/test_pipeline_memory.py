"""Stages under a memory limit: the fastest that fit, or an error with the nearest choice."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from models import TRAININGS, Training, sgd, sum_of_squares
from pipelines import Tower, captured
from training import Captured, capture

from shardc.diagnostics.passes.pipeline import NoCutFits
from shardc.options.pipeline import Pipeline
from shardc.passes.pipeline.cuts.fit_memory import fit_memory
from shardc.passes.pipeline.cuts.stage_memory import held_by_ranks
from shardc.passes.pipeline.pipe_cut import cut_pipeline
from shardc.passes.pipeline.schedules.by_name import schedule
from shardc.passes.pipeline.stages.activations import kept_bytes
from shardc.passes.pipeline.stages.assign_stages import assign_stages, forward_of
from shardc.passes.pipeline.stages.stage_bodies import stage_bodies
from shardc.passes.pipeline.stages.step_program import read_step

KINDS = {0: "FB", 1: "FB"}
TOWER = Training(Tower, lambda: (torch.randn(1024, 64),), sgd, sum_of_squares)
"""What a layer keeps of a micro-batch is more than its weights."""


@pytest.fixture(scope="module")
def tower() -> Captured:
    return capture(TOWER)


@pytest.mark.parametrize("policy", ["none", "full", "selective"])
def test_the_cut_is_the_fastest_that_fits(tower: Captured, policy: str) -> None:
    """Against every cut there is. The search may miss the best by a tenth, as its estimate is."""
    module = tower.compile({"pipe": 2}, {}, 4).rank_module
    program = read_step(module)
    forward, orders, policies = forward_of(program), schedule("1f1b", 2, 4), (policy, policy)
    held, slowest = {}, {}
    for cut in range(1, len(forward.ops)):
        assignment = assign_stages(program, forward, [cut])
        bodies = stage_bodies(program, assignment, KINDS)
        kept = kept_bytes(program, assignment, bodies, policies)
        held[cut] = max(rank.total_bytes for rank in held_by_ranks(program, bodies, kept, orders))
        slowest[cut] = forward.slowest([cut])
    (balanced,) = forward.balanced(2)
    least = min(held.values())
    assert policy == "full" or least < 0.95 * held[balanced]
    for cap in (least * 1.1, (least + held[balanced]) / 2, held[balanced]):
        (found,) = fit_memory(program, forward, orders, policies, KINDS, cap)
        assert held[found] <= cap
        assert slowest[found] <= 1.1 * min(slowest[cut] for cut in held if held[cut] <= cap)
    with pytest.raises(NoCutFits) as caught:
        fit_memory(program, forward, orders, policies, KINDS, least * 0.99)
    assert least <= caught.value.fields["least"] <= 1.1 * least


def test_stages_move_with_the_cap(tower: Captured) -> None:
    """The first stage keeps two micro-batches and the second one: under a cap it gets fewer layers."""

    def parameters(memory_limit_bytes: float) -> list[int]:
        module = tower.compile(
            {"pipe": 2}, "pipeline", 4, Pipeline(memory_limit_bytes=memory_limit_bytes or None)
        ).pipeline_module
        assert module is not None
        functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
        return [sum(a["dist.role"].value == "param" for a in f.attributes["arg_attrs"]) for f in functions]

    balanced = parameters(0)
    assert parameters(1e9) == balanced
    with pytest.raises(
        NoCutFits, match="2 stages was found that keeps each device within 1,000 bytes"
    ) as caught:
        parameters(1000)
    first, second = parameters(caught.value.fields["least"])
    assert first < balanced[0] and first + second == 16
    assert re.search(
        r"stages that start at layers\.\d\.(weight|bias), devices of rank \d hold", str(caught.value)
    )
    assert 'recompute="full"' in str(caught.value)


@pytest.mark.slow
def test_named_stages_are_held_to_the_cap() -> None:
    module = captured("llama").compile({"pipe": 2}, {}, 4).rank_module
    options = Pipeline(stages=("model.layers.1",), memory_limit_bytes=1e3)
    with pytest.raises(NoCutFits, match=r"start at model\.layers\.1\."):
        cut_pipeline(module, "pipe", options)


@pytest.mark.slow
def test_stages_of_one_rank_share_its_memory() -> None:
    step = capture(replace(TRAININGS["llama"], optimizer=sgd))
    options = Pipeline("interleaved", memory_limit_bytes=1.0)
    with pytest.raises(NoCutFits) as caught:
        step.compile({"pipe": 2}, "pipeline", 4, options)
    fitting = Pipeline("interleaved", memory_limit_bytes=float(caught.value.fields["least"]))
    assert step.compile({"pipe": 2}, "pipeline", 4, fitting).pipeline_module is not None
