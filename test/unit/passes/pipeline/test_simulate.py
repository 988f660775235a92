"""The simulator: links, overlap, memory over time, measured runs, on pipelines small enough to be played by
hand.
"""

from __future__ import annotations

import pytest

from shardc.cost.pipeline import StageCost
from shardc.cost.simulate import links_of_nodes, simulate
from shardc.cost.timeline import Timeline, stage_costs, timeline_of
from shardc.diagnostics.passes.pipeline import BadAction, NotMeasured, ScheduleStuck
from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.schedule import Schedule, one_route, orders
from shardc.passes.pipeline.schedules.one_f_one_b import fill_drain, one_f_one_b


def starts(timeline: Timeline) -> dict[str, float]:
    return {str(span.action): span.start_s for spans in timeline.spans for span in spans}


def test_transfers_overlap_with_computing_or_do_not() -> None:
    costs = [StageCost(1, 1, 1, transfer_s=2)] * 2
    schedule = fill_drain(2, 2)
    assert starts(simulate(schedule, costs)) == {
        "0F0": 0,
        "0F1": 1,
        "1F0": 3,
        "1F1": 4,
        "1B0": 5,
        "1B1": 7,
        "0B0": 9,
        "0B1": 11,
    }
    waiting = starts(simulate(schedule, costs, overlap=False))
    assert waiting == {"0F0": 0, "0F1": 3, "1F0": 3, "1F1": 6, "1B0": 7, "1B1": 11, "0B0": 11, "0B1": 15}


def test_transfers_over_one_link_go_one_after_the_other() -> None:
    costs = [StageCost(1, 1, 1, transfer_s=2)] * 2
    timeline = simulate(fill_drain(2, 2), costs, link=lambda sender, receiver: sender)
    assert [(str(t.action), t.start_s, t.end_s) for t in timeline.transfers[:2]] == [
        ("0F0", 1, 3),
        ("0F1", 3, 5),
    ]
    assert starts(timeline)["1F1"] == 5


def test_ranks_of_a_node_share_the_link_that_leaves_it() -> None:
    """Ranks 0 and 1 send at the same time: over links of their own within a node, in turn to another one."""
    a, b = Action(0, "F", 0), Action(1, "F", 1)
    routes = ((0, 2), (1, 3))
    last = [[Action(2, "F", 0), Action(2, "B", 0)], [Action(3, "F", 1), Action(3, "B", 1)]]
    first = [[a, a._replace(kind="B")], [b, b._replace(kind="B")]]
    schedule = Schedule("x", orders(first + last), routes)
    costs = [StageCost(1, 1, 1, transfer_s=2)] * 4
    assert [starts(simulate(schedule, costs, link=links_of_nodes(4)))[n] for n in ("2F0", "3F1")] == [3, 3]
    assert [starts(simulate(schedule, costs, link=links_of_nodes(2)))[n] for n in ("2F0", "3F1")] == [3, 5]


def test_memory_over_time() -> None:
    """From a forward's start to its backward's end; of what a split backward leaves, until the weight
    gradient's end.
    """
    cost = StageCost(1, 1, 1, activation_bytes=8, weight_bytes=2)
    whole = simulate(one_f_one_b(1, 2), [cost])
    assert whole.memory([cost]) == [[(0, 8), (3, 0), (3, 8), (6, 0)]]
    texts = "0F0 0F1 0I0 0I1 0W0 0W1"
    split = Schedule("x", orders([[Action.parse(text) for text in texts.split()]]), one_route(1))
    timeline = simulate(split, [cost])
    assert timeline.memory([cost]) == [[(0, 8), (1, 16), (3, 10), (4, 4), (5, 2), (6, 0)]]
    assert timeline.peak_bytes([cost]) == [16]


def test_rates() -> None:
    timeline = simulate(one_f_one_b(2, 2), [StageCost(1, 1, 1)] * 2)
    assert timeline.step_s == 9 and timeline.longest_span_s == 9 and timeline.busy_s == 6
    assert timeline.bubble_rate == pytest.approx(1 / 3)
    assert timeline.idle_rates == pytest.approx([1 / 3, 1 / 3])


def test_a_measured_run_begins_at_0() -> None:
    simulated = simulate(one_f_one_b(2, 3), [StageCost(1, 2, 1, 0.5)] * 2)
    records = [
        (s.rank, str(s.action), s.start_s + 100, s.end_s + 100) for spans in simulated.spans for s in spans
    ]
    assert timeline_of(reversed(records), 2).spans == simulated.spans
    with pytest.raises(BadAction, match="'x' is not an action"):
        timeline_of([(0, "x", 0, 1)], 1)


def test_a_schedule_that_is_stuck_says_where() -> None:
    stuck = Schedule("x", orders([[Action(0, "B", 0), Action(0, "F", 0)]]), one_route(1))
    with pytest.raises(ScheduleStuck, match="its ranks wait at 0B0"):
        simulate(stuck, [StageCost(1, 1, 1)])


@pytest.mark.slow
def test_a_large_pipeline_is_played_whole() -> None:
    """64 stages, 512 micro-batches: 0.5 s of CPU (docs/decisions/0028)."""
    timeline = simulate(one_f_one_b(64, 512), [StageCost(1, 1, 1)] * 64)
    assert timeline.step_s == 3 * (512 + 63)


def test_times_of_a_measured_run() -> None:
    """Medians of what each stage took; a whole backward is half I and half W. What was not run is named."""
    real = [StageCost(1, 2, 3), StageCost(4, 5, 6)]
    run = simulate(Schedule("x", orders([_row("0F0 0I0 0W0"), _row("1F0 1B0")]), one_route(2)), real)
    sizes = [StageCost(0, 0, 0, activation_bytes=7)] * 2
    assert stage_costs(run, sizes, transfer_s=0.5) == [
        StageCost(1, 2, 3, 0.5, activation_bytes=7),
        StageCost(4, 5.5, 5.5, 0.5, activation_bytes=7),
    ]
    slow = timeline_of(
        [(0, f"0{kind}{m}", m, m + (9 if m == 2 else 1)) for m in range(3) for kind in "FB"], 1
    )
    assert stage_costs(slow, sizes[:1])[0].forward_s == 1
    with pytest.raises(NotMeasured, match="no F of stage 2"):
        stage_costs(run, [*sizes, sizes[0]])


def _row(text: str) -> list[Action]:
    return [Action.parse(cell) for cell in text.split()]
