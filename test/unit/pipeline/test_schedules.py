"""Schedules against the figures of their papers, played through by the simulator."""

from __future__ import annotations

import pytest

from shardc.cost.pipeline import StageCost, simulate
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.check_schedule import check_schedule
from shardc.passes.pipeline.schedules.one_f_one_b import breadth_first, fill_drain, interleaved, one_f_one_b
from shardc.passes.pipeline.schedules.zero_bubble import EQUAL, zb_h1, zb_h2

RANKS = 8
PUBLISHED = {
    24: ((18.522, 18.086, 9.337, 0.601), (0.2431, 0.1055, 0.1585, 0.1083)),
    32: ((18.513, 18.086, 9.331, 0.626), (0.1985, 0.0818, 0.1242, 0.0837)),
    64: ((18.546, 18.097, 9.321, 0.762), (0.1240, 0.0443, 0.0674, 0.0444)),
}
"""Micro-batches -> ms of F, B, W and communication; bubble rates of 1F1B, interleaved, ZB-H1, ZB-H2. Qi et al., Zero
Bubble Pipeline Parallelism, tables 5 and 9: the 1.5B model on 8 ranks."""


@pytest.mark.parametrize("micro_batches", PUBLISHED)
def test_bubble_rates_are_the_published_ones(micro_batches: int) -> None:
    times, (ours, chunks, h1, h2) = PUBLISHED[micro_batches]
    costs = [StageCost(*times, activation_bytes=1, weight_bytes=1)] * RANKS
    assert round(simulate(one_f_one_b(RANKS, micro_batches), costs).bubble_rate, 4) == ours
    assert round(simulate(zb_h1(RANKS, micro_batches, costs), costs).bubble_rate, 4) == h1
    assert round(simulate(zb_h2(RANKS, micro_batches, costs), costs).bubble_rate, 4) == h2
    # The paper does not say how many stages a rank had: its 24 layers over 8 ranks make 3 of one layer each.
    *seconds, transfer_s = times
    thirds = [StageCost(*(s / 3 for s in seconds), transfer_s)] * (3 * RANKS)
    assert simulate(interleaved(RANKS, micro_batches, 3), thirds).bubble_rate == pytest.approx(
        chunks, abs=0.01
    )


@pytest.mark.parametrize("micro_batches", (8, 16, 40))
def test_bubbles_where_all_times_are_equal(micro_batches: int) -> None:
    costs = [EQUAL] * RANKS
    ideal = (RANKS - 1) / (micro_batches + RANKS - 1)
    for schedule in (fill_drain(RANKS, micro_batches), one_f_one_b(RANKS, micro_batches)):
        assert simulate(schedule, costs).bubble_rate == pytest.approx(ideal)
    third = (RANKS - 1) / (3 * micro_batches + RANKS - 1)
    assert simulate(zb_h1(RANKS, micro_batches), costs).bubble_rate == pytest.approx(third)
    if micro_batches >= 2 * RANKS - 1:
        assert simulate(zb_h2(RANKS, micro_batches), costs).bubble_rate == pytest.approx(0)


def test_what_each_rank_holds() -> None:
    costs = [EQUAL] * (2 * RANKS)
    peaks = {s.name: simulate(s, costs).peak_bytes(costs) for s in _all(RANKS, 16)}
    assert peaks["fill-drain"] == [16] * RANKS
    assert peaks["1f1b"] == [RANKS - rank for rank in range(RANKS)]
    assert max(peaks["zb-h1"]) == RANKS and max(peaks["zb-h2"]) == 2 * RANKS - 1


@pytest.mark.parametrize("ranks", (1, 2, 4, 8))
@pytest.mark.parametrize("times", (1, 2, 4))
def test_every_schedule_runs(ranks: int, times: int) -> None:
    for schedule in _all(ranks, ranks * times):
        check_schedule(schedule)


def _all(ranks: int, micro_batches: int) -> list[Schedule]:
    return [
        fill_drain(ranks, micro_batches),
        breadth_first(ranks, micro_batches, 2),
        one_f_one_b(ranks, micro_batches),
        interleaved(ranks, micro_batches, 2),
        zb_h1(ranks, micro_batches),
        zb_h2(ranks, micro_batches),
    ]
