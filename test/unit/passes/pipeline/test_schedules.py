"""Schedules against the figures of their papers, played through by the simulator."""

from __future__ import annotations

import pytest

from shardc.cost.pipeline import StageCost
from shardc.cost.simulate import simulate
from shardc.cost.timeline import Timeline
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.checks.check_schedule import check_schedule
from shardc.passes.pipeline.schedules.bidirectional import chimera
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.passes.pipeline.schedules.list_scheduling import EQUAL
from shardc.passes.pipeline.schedules.one_f_one_b import breadth_first, fill_drain, interleaved, one_f_one_b
from shardc.passes.pipeline.schedules.registry import SCHEDULES
from shardc.passes.pipeline.schedules.synthesis import best_schedule
from shardc.passes.pipeline.schedules.token_level import seq_1f1b, tera_pipe
from shardc.passes.pipeline.schedules.v_shape import building_block, dual_pipe_v, v_half, v_min, zb_v
from shardc.passes.pipeline.schedules.wave import hanayo
from shardc.passes.pipeline.schedules.zero_bubble import zb_h1, zb_h2

RANKS = 8
PUBLISHED = {
    24: ((18.522, 18.086, 9.337, 0.601), (0.2431, 0.1055, 0.1585, 0.1083, 0.0433)),
    32: ((18.513, 18.086, 9.331, 0.626), (0.1985, 0.0818, 0.1242, 0.0837, 0.0039)),
    64: ((18.546, 18.097, 9.321, 0.762), (0.1240, 0.0443, 0.0674, 0.0444, 0.0026)),
}
"""Micro-batches -> ms of F, B, W and communication; bubble rates of 1F1B, interleaved, ZB-H1, ZB-H2, ZB-2p.
Qi et al., Zero Bubble Pipeline Parallelism, tables 5 and 9: the 1.5B model on 8 ranks.
"""


@pytest.mark.parametrize("micro_batches", PUBLISHED)
def test_bubble_rates_are_the_published_ones(micro_batches: int) -> None:
    times, (ours, chunks, h1, h2, _) = PUBLISHED[micro_batches]
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


@pytest.mark.parametrize("micro_batches", (24, 32))
def test_auto_reaches_the_published_zb_2p(micro_batches: int) -> None:
    """The paper's search under the memory of 2p micro-batches. W keeps 32 of the 34 + 5as/h bytes an element
    that F does (Korthikanti et al. 2022; section 4.1 of the paper): a = 24 heads, s = 1024, h = 2304.

    Ours is 0.0013 behind for 24 micro-batches, the published one to four digits for 32 and 64.
    """
    times, (*_, published) = PUBLISHED[micro_batches]
    kept = 32 / (34 + 5 * 24 * 1024 / 2304)
    costs = [StageCost(*times, activation_bytes=1, weight_bytes=kept)] * RANKS
    best = best_schedule(RANKS, micro_batches, costs, memory_limit_bytes=2 * RANKS, measure="span")
    check_schedule(best.schedule, micro_batches)
    assert best.timeline.bubble_rate <= published + 0.0015
    assert best.peak_bytes <= 2 * RANKS


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


def part(parts: int) -> StageCost:
    """A stage that is one of ``parts`` of EQUAL."""
    return StageCost(1 / parts, 1 / parts, 1 / parts, activation_bytes=1 / parts, weight_bytes=1 / parts)


def played(schedule: Schedule, stages_per_rank: int = 1) -> tuple[Timeline, float, float]:
    """Its timeline, bubble in time of a rank's F, and the most that a rank holds in whole micro-batches."""
    costs = [part(stages_per_rank)] * schedule.stages
    timeline = simulate(schedule, costs)
    sequences = schedule.micro_batches / schedule.slices
    return timeline, timeline.longest_span_s - 3 * sequences, max(timeline.peak_bytes(costs))


@pytest.mark.parametrize("ranks", (2, 4, 8, 16))
@pytest.mark.parametrize("times", (2, 4))
def test_v_shapes_where_all_times_are_equal(ranks: int, times: int) -> None:
    """1F1B waits for 3 (p - 1) and holds p. ZB-V waits for nothing at that memory; V-Half half as long at (p
    + 2) / 2, published as a half; V-Min two thirds (its published 4p - 1 of 6p, in sixths of F, I and W, and
    up to 2p/3 more) at (p + 4) / 3 or less.
    """
    micro_batches, one = times * ranks, 3 * (ranks - 1)
    _, bubble, held = played(zb_v(ranks, micro_batches), 2)
    assert bubble == pytest.approx(0) and held == ranks
    _, bubble, held = played(v_half(ranks, micro_batches), 2)
    assert bubble == pytest.approx(one / 2) and held <= ranks / 2 + 1
    _, bubble, held = played(v_min(ranks, micro_batches), 2)
    assert bubble <= 2 / 3 * one + 0.5 and held <= max(ranks + 4, 6) / 3


def test_the_general_block_is_the_published_one() -> None:
    """V-Min from speeds of 1 and 1, at the offsets i, 2p-i-1, 2p+iv+i, 4p+iv-i-1 of Qi et al. 2024."""
    for ranks in (2, 3, 4, 6, 8, 15):
        late = 0 if ranks % 3 else 2
        published = [
            (i, 2 * ranks - i - 1, 2 * ranks + late + i, 4 * ranks + late - i - 1) for i in range(ranks)
        ]
        assert building_block(ranks, 1, 1) == published


@pytest.mark.parametrize("ranks", (2, 4, 8))
def test_dual_pipe_v(ranks: int) -> None:
    """Its bubble is at most that of one stage and rank, at one stage's activations more than 1F1B's
    (DeepSeek-AI's table).
    """
    _, bubble, held = played(dual_pipe_v(ranks, 4 * ranks), 2)
    assert bubble <= (ranks - 1) / 2 + 1e-9 and held <= ranks + 0.5


@pytest.mark.parametrize("ranks", (2, 4, 8))
@pytest.mark.parametrize("times", (1, 2, 4))
def test_chimera(ranks: int, times: int) -> None:
    """Of p micro-batches each direction has half. It waits for p - 2 forwards where F and B take as long (Li
    and Hoefler 2021, table 2), for twice that where B takes twice F's time ((D-2) / (3N/2 + D-2) of the
    step), and holds p/2 + 1 to p micro-batches in either case. Units of p micro-batches one behind the other
    wait for p - 2 more each where B takes longer; ours at most for that.
    """
    costs = [StageCost(1, 0.5, 0.5)] * (2 * ranks)
    schedule = chimera(ranks, times * ranks, costs[:ranks])
    timeline = simulate(schedule, costs)
    assert timeline.step_s == pytest.approx(2 * times * ranks + ranks - 2)
    peaks = timeline.peak_bytes(costs)
    assert peaks[0] == ranks / 2 + 1 and max(peaks) == ranks

    equal = [EQUAL] * (2 * ranks)
    slower = chimera(ranks, times * ranks)
    _, bubble, held = played(slower)
    assert bubble <= (times + 1) * (ranks - 2) and held == ranks
    assert min(simulate(slower, equal).peak_bytes(equal)) >= ranks / 2 + 1
    if times == 1:
        assert bubble == 2 * (ranks - 2)
        assert [sum(action.micro_batch % 2 for action in order) for order in slower.orders] == [ranks] * ranks


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ranks", (4, 8))
@pytest.mark.parametrize("times", (1, 2, 4))
def test_waves_make_bubbles_smaller(ranks: int, times: int) -> None:
    """Hanayo's claim: below 1F1B's, and smaller the more waves; at half more memory at most.

    With more micro-batches than ranks our order is greedy, and four waves do not always gain on two.
    """
    one = played(one_f_one_b(ranks, times * ranks))[1]
    bubbles = []
    for stages_per_rank in (2, 4, 8):
        _, bubble, held = played(hanayo(ranks, times * ranks, stages_per_rank), stages_per_rank)
        assert held <= 1.5 * ranks
        bubbles.append(bubble)
    assert one > bubbles[0] > bubbles[1]
    assert bubbles[2] < (bubbles[1] if times == 1 else bubbles[0])


@pytest.mark.parametrize("slices", (1, 2, 4))
def test_slices_divide_the_bubble_and_the_memory(slices: int) -> None:
    """s slices: (p - 1) / s of the bubble; Seq1F1B holds p - 1 + s slices, TeraPipe all (Sun et al. 2024,
    table 1).
    """
    cost = part(slices)
    for schedule, held in (
        (seq_1f1b(RANKS, 16, slices), (RANKS - 1 + slices) / slices),
        (tera_pipe(RANKS, 16, slices), 16),
    ):
        timeline = simulate(schedule, [cost] * RANKS)
        assert timeline.step_s - 48 == pytest.approx(3 * (RANKS - 1) / slices)
        assert max(timeline.peak_bytes([cost] * RANKS)) == pytest.approx(held)


def test_what_each_rank_holds() -> None:
    costs = [EQUAL] * RANKS
    held = {
        name: simulate(by_name(name, RANKS, 16), costs).peak_bytes(costs)
        for name in ("fill-drain", "1f1b", "zb-h1", "zb-h2")
    }
    assert held["fill-drain"] == [16] * RANKS
    assert held["1f1b"] == [RANKS - rank for rank in range(RANKS)]
    assert max(held["zb-h1"]) == RANKS and max(held["zb-h2"]) == 2 * RANKS - 1
    two = [EQUAL] * (2 * RANKS)
    assert simulate(breadth_first(RANKS, 16, 2), two).peak_bytes(two) == [32] * RANKS


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("stages", (1, 2, 4, 8))
@pytest.mark.parametrize("times", (1, 2, 4))
def test_every_schedule_runs(name: str, stages: int, times: int) -> None:
    """On as many ranks as it can use; where it cannot be made of so few stages, it says so
    (``test_by_name.py``).
    """
    named = SCHEDULES[name]
    ranks = max(1, stages // named.fewest)
    if not named.accepts(stages, ranks):
        assert stages == 1
        return
    micro_batches = named.nearest(ranks, stages * times)
    schedule = by_name(name, stages, micro_batches)
    check_schedule(schedule, micro_batches * schedule.slices)
    assert schedule.ranks == ranks and schedule.changes_mathematics == name.startswith("pipedream")
    costs = [EQUAL] * schedule.stages
    assert simulate(schedule, costs).busy_s == pytest.approx(
        3 * micro_batches * schedule.slices * stages / ranks
    )


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_runs_with_any_costs(name: str) -> None:
    """Uneven stages, one that is an embedding alone, and transfers that take as long as computing."""
    costs = [
        StageCost(0.1, 0, 0.3, 1),
        StageCost(2, 3, 1, 0.5),
        StageCost(1, 1, 1, 2),
        StageCost(0.5, 3, 0, 0),
    ]
    schedule = by_name(name, 4, 8, costs=costs)
    check_schedule(schedule)
    simulate(schedule, costs * (schedule.stages // 4))
