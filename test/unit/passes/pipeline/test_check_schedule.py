"""Broken schedules are refused with the action that breaks them; valid ones are not (hypothesis)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.cost.pipeline import StageCost
from shardc.diagnostics.passes.pipeline import BadSchedule, TooMuchMemory
from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.schedule import Schedule, Updates, one_route, orders
from shardc.passes.pipeline.checks.check_schedule import check_memory, check_schedule
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.passes.pipeline.schedules.one_f_one_b import one_f_one_b
from shardc.passes.pipeline.schedules.registry import SCHEDULES

VALID = [
    by_name(name, 4, 8, **({"slices": 2} if named.options.get("slices") else {}))
    for name, named in SCHEDULES.items()
]


def valid(schedule: Schedule, micro_batches: int) -> bool:
    """The judge: plays the schedule on an abstract machine, by rules written down from the issue and from
    nothing of ours.

    Ranks are tried in turn until none can go on. What has run is kept as text.
    """
    wanted = set()
    for m in range(micro_batches):
        for stage in schedule.routes[m % len(schedule.routes)]:
            split = any(a == (stage, "I", m) for order in schedule.orders for a in order)
            wanted |= {f"{stage}{kind}{m}" for kind in ("FIW" if split else "FB")}
    listed = [str(action) for order in schedule.orders for action in order]
    if sorted(listed) != sorted(wanted):
        return False
    homes: dict[int, set[int]] = {}
    for rank, order in enumerate(schedule.orders):
        for action in order:
            homes.setdefault(action.stage, set()).add(rank)
    if any(len(ranks) > 1 for ranks in homes.values()):
        return False
    return _plays(schedule, micro_batches)


def _plays(schedule: Schedule, micro_batches: int) -> bool:
    ran: set[str] = set()
    left = [list(order) for order in schedule.orders]
    updates = dict.fromkeys(range(schedule.stages), 0)
    gradients = dict.fromkeys(range(schedule.stages), 0)

    def can(stage: int, kind: str, m: int) -> bool:
        route = schedule.routes[m % len(schedule.routes)]
        place, part = route.index(stage), m % schedule.slices
        back = lambda s, n: f"{s}I{n}" in ran or f"{s}B{n}" in ran  # noqa: E731
        if kind == "F":
            late = schedule.updates is not None and schedule.updates.delay is not None
            if late and updates[stage] < m // schedule.updates.every - schedule.updates.delay:
                return False
            return (place == 0 or f"{route[place - 1]}F{m}" in ran) and (
                part == 0 or f"{stage}F{m - 1}" in ran
            )
        if kind == "W":
            return f"{stage}I{m}" in ran
        behind = place == len(route) - 1 or back(route[place + 1], m)
        after = part == schedule.slices - 1 or back(stage, m + 1)
        return f"{stage}F{m}" in ran and behind and after

    moved = True
    while moved:
        moved = False
        for order in left:
            if order and can(*order[0]):
                action = order.pop(0)
                ran.add(str(action))
                if action.kind in "BW" and schedule.updates is not None:
                    gradients[action.stage] += 1  # in order of micro-batches in all schedules with updates
                    updates[action.stage] = gradients[action.stage] // schedule.updates.every
                moved = True
    return not any(left)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[Schedule, int]:
    """A schedule with one or two changes, and its number of micro-batches."""
    schedule = draw(st.sampled_from(VALID))
    lists = [list(order) for order in schedule.orders]
    for _ in range(draw(st.integers(1, 2))):
        rank = draw(st.integers(0, len(lists) - 1))
        order = lists[rank]
        i, j = draw(st.integers(0, len(order) - 1)), draw(st.integers(0, len(order) - 1))
        what = draw(st.sampled_from(("drop", "double", "swap", "move", "elsewhere", "kind", "other")))
        if what == "swap":
            order[i], order[j] = order[j], order[i]
        elif what == "move":
            order.insert(j, order.pop(i))
        elif what == "double":
            order.insert(j, order[i])
        elif what == "kind":
            order[i] = order[i]._replace(kind=draw(st.sampled_from("FBIW")))
        elif what == "other":
            order[i] = order[i]._replace(micro_batch=draw(st.integers(0, schedule.micro_batches)))
        elif what == "elsewhere":
            other = lists[draw(st.integers(0, len(lists) - 1))]
            other.insert(draw(st.integers(0, len(other))), order.pop(i))
        else:
            del order[i]
        if not order:
            break
    return replace(schedule, orders=orders(lists)), schedule.micro_batches


@pytest.mark.slow
@given(mutated())
@settings(max_examples=500, deadline=None)
def test_mutations(case: tuple[Schedule, int]) -> None:
    schedule, micro_batches = case
    if valid(schedule, micro_batches):
        check_schedule(schedule, micro_batches)
    else:
        with pytest.raises(BadSchedule):
            check_schedule(schedule, micro_batches)


@pytest.mark.parametrize("schedule", VALID, ids=lambda schedule: schedule.name)
def test_the_judge_and_the_checker_take_what_is_valid(schedule: Schedule) -> None:
    assert valid(schedule, schedule.micro_batches)
    check_schedule(schedule, schedule.micro_batches)


def test_the_message_names_the_action_and_what_it_waits_for() -> None:
    a, b = Action(0, "F", 0), Action(0, "B", 0)
    c, d = Action(1, "F", 0), Action(1, "B", 0)
    with pytest.raises(BadSchedule, match="1B0 comes before 1F0, which it needs"):
        check_schedule(Schedule("x", orders([[a, b], [d, c]]), one_route(2)))
    first = [a, b, Action(0, "F", 1), Action(0, "B", 1)]
    second = [c, Action(1, "F", 1), d, Action(1, "B", 1)]
    with pytest.raises(
        BadSchedule, match="0B0 waits for 1B0, but rank 1 is stuck before that, at 1F1 for 0F1"
    ):
        check_schedule(Schedule("x", orders([first, second]), one_route(2)))
    with pytest.raises(BadSchedule, match="1F0 is on rank 2, but stage 1 is on rank 1"):
        check_schedule(Schedule("x", orders([[a, b], [d], [c]]), one_route(2)))
    with pytest.raises(BadSchedule, match="0W0 is missing, but 0I0 occurs"):
        check_schedule(Schedule("x", orders([[a, Action(0, "I", 0)]]), one_route(1)))


def test_an_action_runs_once() -> None:
    f, b, i, w = (Action(0, kind, 0) for kind in "FBIW")
    with pytest.raises(BadSchedule, match="0F0 occurs twice"):
        check_schedule(Schedule("x", orders([[f, f, b]]), one_route(1)))
    with pytest.raises(BadSchedule, match="0B0 occurs beside a part of itself"):
        check_schedule(Schedule("x", orders([[f, b, i, w]]), one_route(1)))


def test_micro_batches_are_counted() -> None:
    whole = one_f_one_b(2, 4)
    with pytest.raises(BadSchedule, match="0F4 is missing"):
        check_schedule(whole, micro_batches=5)
    with pytest.raises(BadSchedule, match="0F3 occurs, but there are 3 micro-batches"):
        check_schedule(whole, micro_batches=3)
    with pytest.raises(BadSchedule, match="has 4 micro-batches, of 3 slices each"):
        check_schedule(replace(whole, slices=3))
    with pytest.raises(BadSchedule, match="it has 0 micro-batches"):
        check_schedule(Schedule("x", ((), ()), one_route(2)))


def test_weights_that_are_not_there_yet() -> None:
    """PipeDream-2BW with smaller groups than ranks: rank 0 would need an update whose gradients
    come later.
    """
    with pytest.raises(BadSchedule, match="0F4 needs version 1 of its weights, but only 0 exist by then"):
        check_schedule(replace(one_f_one_b(8, 16), updates=Updates(every=2, delay=1)))


def test_memory_is_bounded() -> None:
    costs = [StageCost(1, 1, 1, activation_bytes=100)] * 4
    check_memory(one_f_one_b(4, 8), costs, 400)
    with pytest.raises(TooMuchMemory, match="rank 0 hold 400 bytes of activations in 0F3; its limit is 399"):
        check_memory(one_f_one_b(4, 8), costs, 399)
