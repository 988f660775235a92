"""Broken schedules are refused with the action that breaks them; valid ones are not (hypothesis)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.cost.pipeline import StageCost, simulate
from shardc.diagnostics.pipeline import BadAction, BadSchedule, ScheduleStuck, TooMuchMemory
from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.csv_form import read_csv, write_csv
from shardc.dialects.pipe.schedule import Schedule, one_route, orders
from shardc.passes.pipeline.check_schedule import check_memory, check_schedule
from shardc.passes.pipeline.schedules.one_f_one_b import interleaved, one_f_one_b
from shardc.passes.pipeline.schedules.zero_bubble import EQUAL, zb_h1

VALID = [one_f_one_b(4, 8), interleaved(2, 4, 2), zb_h1(3, 6)]


def _with(schedule: Schedule, rank: int, order: list[Action]) -> Schedule:
    changed = list(schedule.orders)
    changed[rank] = tuple(order)
    return replace(schedule, orders=tuple(changed))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_mutations(data: st.DataObject) -> None:
    """Dropped and doubled actions are always refused; swapped ones exactly if some order of events cannot run them."""
    schedule = data.draw(st.sampled_from(VALID))
    rank = data.draw(st.integers(0, schedule.ranks - 1))
    order = list(schedule.orders[rank])
    i, j = data.draw(st.integers(0, len(order) - 1)), data.draw(st.integers(0, len(order) - 1))
    what = data.draw(st.sampled_from(("drop", "double", "swap")))
    if what == "swap":
        order[i], order[j] = order[j], order[i]
        changed = _with(schedule, rank, order)
        if _runs(changed):
            check_schedule(changed)
        else:
            with pytest.raises(BadSchedule):
                check_schedule(changed)
        return
    order = order[:i] + order[i + 1 :] if what == "drop" else [*order[:j], order[i], *order[j:]]
    with pytest.raises(BadSchedule, match=str(schedule.orders[rank][i]) if what == "double" else None):
        check_schedule(_with(schedule, rank, order))


def _runs(schedule: Schedule) -> bool:
    """Whether the simulator, which is written otherwise, comes to the end."""
    try:
        simulate(schedule, [EQUAL] * schedule.stages)
    except ScheduleStuck:
        return False
    return True


def test_the_message_names_the_action_and_what_it_waits_for() -> None:
    a, b = Action(0, "F", 0), Action(0, "B", 0)
    c, d = Action(1, "F", 0), Action(1, "B", 0)
    with pytest.raises(BadSchedule, match="1B0 stands before 1F0, which it needs"):
        check_schedule(Schedule("x", orders([[a, b], [d, c]]), one_route(2)))
    first = [a, b, Action(0, "F", 1), Action(0, "B", 1)]
    second = [c, Action(1, "F", 1), d, Action(1, "B", 1)]
    with pytest.raises(BadSchedule, match="0B0 waits for 1B0, but rank 1 waits before that, at 1F1 for 0F1"):
        check_schedule(Schedule("x", orders([first, second]), one_route(2)))
    with pytest.raises(BadSchedule, match="1F0 is on rank 2, but stage 1 is on rank 1"):
        check_schedule(Schedule("x", orders([[a, b], [d], [c]]), one_route(2)))
    with pytest.raises(BadSchedule, match="0W0 is not there, but 0I0 is"):
        check_schedule(Schedule("x", orders([[a, Action(0, "I", 0)]]), one_route(1)))


def test_memory_is_bounded() -> None:
    costs = [StageCost(1, 1, 1, activation_bytes=100)] * 4
    check_memory(one_f_one_b(4, 8), costs, 400)
    with pytest.raises(TooMuchMemory, match="rank 0 hold 400 bytes of activations; it may hold 399"):
        check_memory(one_f_one_b(4, 8), costs, 399)


def test_csv_and_back() -> None:
    for schedule in VALID:
        assert read_csv(write_csv(schedule)).orders == schedule.orders
    assert read_csv("0F0,,0B0\n").orders == ((Action(0, "F", 0), Action(0, "B", 0)),)
    with pytest.raises(BadAction, match="'F0' is no action"):
        read_csv("F0\n")


def test_torch_reads_our_csv_and_we_read_its() -> None:
    from torch.distributed.pipelining.schedules import _Action

    for schedule in VALID:
        for ours in schedule.actions():
            theirs = _Action.from_str(str(ours))
            assert (theirs.stage_index, theirs.computation_type.value, theirs.microbatch_index) == tuple(ours)
            assert Action.parse(repr(theirs)) == ours
