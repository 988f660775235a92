"""Stages of a forward: their least work, by brute force, and with all equal layers."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from shardc.cost.cluster.names import find_cluster
from shardc.cost.schedule_form import FORMS
from shardc.passes.search.calls.stage_work import forward_work, fullest, stages_at, unevenness
from shardc.planning.candidates import Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_the_slowest_stage_is_as_short_as_possible(stages: int) -> None:
    for seed in range(10):
        work = np.random.default_rng(seed).exponential(size=9).tolist()
        cuts = itertools.combinations(range(1, len(work)), stages - 1)
        slowest = min(max(parts(work, at)) for at in cuts)
        assert unevenness(work, stages) == pytest.approx(slowest * stages / sum(work))


def parts(work: list[float], cuts: tuple[int, ...]) -> list[float]:
    return [sum(work[start:end]) for start, end in itertools.pairwise((0, *cuts, len(work)))]


def test_stages_beyond_the_calls_are_empty() -> None:
    assert unevenness([1.0, 1.0], 4) == pytest.approx(2.0)
    assert unevenness([], 4) == unevenness([0.0], 2) == 1.0


@pytest.mark.parametrize("layers", [3, 12])
def test_layers_that_the_program_lacks_count(layers: int) -> None:
    """Twelve layers are searched as four."""
    with torch.device("meta"):
        blocks = (
            nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)) for _ in range(layers)
        )
        model, batch = nn.Sequential(nn.Linear(64, 64), *blocks), (torch.empty(32, 64),)
    question = Question(
        "blocks", model, torch.optim.AdamW(model.parameters()), batch, lambda out, _: out.square().mean()
    )
    step = Pricer(question, cluster=find_cluster("h100-2")).graph(Candidate({"nvlink": 2}, "auto"))
    products = [work for work in forward_work(step.program, step.folded) if work]
    first, each = 2 * 32 * 64 * 64, 2 * 32 * 64 * 256
    assert products == [first, *[each, each] * layers]


@pytest.mark.parametrize("speeds", [(3.0, 1.0), (1.0, 3.0), (2.0, 2.0, 1.0)])
def test_stages_of_unequal_speed_are_as_fast_as_possible(speeds: tuple[float, ...]) -> None:
    for seed in range(10):
        work = np.random.default_rng(seed).exponential(size=7)
        done = (work.cumsum() / work.sum()).tolist()[:-1]
        found = stages_at(done, speeds)
        assert found is not None and sum(found) == pytest.approx(1.0)
        every = itertools.combinations(done, len(speeds) - 1)
        stages = ([b - a for a, b in itertools.pairwise((0.0, *at, 1.0))] for at in every)
        best = min(max(part / speed for part, speed in zip(parts, speeds, strict=True)) for parts in stages)
        assert max(p / s for p, s in zip(found, speeds, strict=True)) == pytest.approx(best)


def test_each_stage_has_work() -> None:
    assert stages_at([0.25, 0.5, 0.75], [100.0, 1.0, 1.0]) == pytest.approx([0.5, 0.25, 0.25])
    assert stages_at([0.5], [1.0, 1.0, 1.0]) is None


def test_the_fullest_stage_of_a_chain_is_the_slowest() -> None:
    work = [1.0] * 7
    assert fullest(work, 4, FORMS[0]) == pytest.approx(2 * 4 / 7)
    assert fullest(work, 1, FORMS[0]) == 1.0
    assert all(fullest(work, 4, form) == 1.0 for form in FORMS if form.per_rank > 1)
    assert fullest(work, 4, replace(FORMS[0], path=0.5)) == 1.0
