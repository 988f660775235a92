"""Cuts for stages of about equal cost: the fewest bytes among those that are nearly as fast as possible."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from shardc.cost.links import WIRE
from shardc.passes.pipeline.cuts.balance import SLACK, Forward


def drawn(seed: int, ops: int = 14) -> Forward:
    """A forward of long and short ops, with cuts that send very different numbers of bytes."""
    draw = np.random.default_rng(seed)
    forward = Forward([], {})
    forward.ops = [None] * ops  # type: ignore[list-item]
    forward.work = np.where(draw.random(ops) < 0.5, 1.0, 0.005).tolist()
    forward.cost = [0.0, *itertools.accumulate(forward.work)]
    forward.crossing = (draw.integers(1, 100, ops + 1) * 1e-3 / WIRE).tolist()
    return forward


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_the_fewest_bytes_are_sent_among_fast_cuts(stages: int) -> None:
    moved = 0
    for forward in map(drawn, range(20)):
        every = [*itertools.combinations(range(1, len(forward.ops)), stages - 1)]
        fastest = min(every, key=forward.slowest)
        fast = [cuts for cuts in every if forward.slowest(cuts) <= forward.slowest(fastest) * (1 + SLACK)]
        found = forward.balanced(stages)
        assert tuple(found) in fast
        assert sent(forward, found) == pytest.approx(min(sent(forward, cuts) for cuts in fast))
        moved += tuple(found) != fastest
    assert moved


def sent(forward: Forward, cuts: tuple[int, ...] | list[int]) -> float:
    return sum(forward.crossing[place] for place in cuts)


def test_early_stages_get_less_work_among_equally_good_cuts() -> None:
    """Stage s of p holds up to p - s micro-batches."""
    forward = drawn(0, ops=7)
    forward.work = [0.1, *[1.0] * 6]  # an embedding and six equal layers
    forward.cost = [0.0, *itertools.accumulate(forward.work)]
    forward.crossing = [1e-3 / WIRE] * 8
    cuts = forward.balanced(4)
    assert cuts == [2, 3, 5]  # not the embedding alone, and then two layers for each stage
    fast = [
        other
        for other in itertools.combinations(range(1, 7), 3)
        if forward.slowest(other) <= forward.slowest(cuts) * (1 + SLACK)
    ]
    assert in_flight(forward, cuts) == pytest.approx(min(in_flight(forward, other) for other in fast))
    assert in_flight(forward, cuts) < max(in_flight(forward, other) for other in fast)


def in_flight(forward: Forward, cuts: tuple[int, ...] | list[int]) -> float:
    """Return the most work whose activations a stage holds."""
    ends, stages = [0, *cuts, len(forward.ops)], len(cuts) + 1
    costs = [forward.cost[j] - forward.cost[i] for i, j in itertools.pairwise(ends)]
    return max((stages - place) * cost for place, cost in enumerate(costs))
