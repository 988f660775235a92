"""Sends and receives: as placed they run on every transport, and wrong ones are refused (hypothesis, against
a graph's cycles).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.diagnostics.passes.pipeline import BadTransfers, ScheduleStuck, TooManyBuffers
from shardc.dialects.pipe.action import Action, Step, Steps, Transfer, parse_step
from shardc.dialects.pipe.schedule import Schedule, one_route, orders
from shardc.passes.pipeline.checks.check_transfers import Mode, check_transfers, peak_buffers
from shardc.passes.pipeline.ranks.transfers import place_transfers
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.passes.pipeline.schedules.one_f_one_b import one_f_one_b
from shardc.passes.pipeline.schedules.registry import SCHEDULES

MODES: tuple[Mode, ...] = ("blocking", "batched", "buffered", "paired")
SMALL = [one_f_one_b(3, 4), by_name("zb-v", 6, 4), by_name("chimera", 2, 4), by_name("interleaved", 4, 4)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("stages", (2, 4, 8))
def test_every_schedule_runs_on_every_transport(name: str, stages: int) -> None:
    schedule = by_name(name, stages, 2 * stages)
    steps = place_transfers(schedule)
    for mode in MODES:
        check_transfers(schedule, steps, mode)
    compute = tuple(tuple(step for step in row if isinstance(step, Action)) for row in steps)
    assert compute == schedule.orders


def test_transfers_of_a_round_stand_in_the_order_of_the_ranks_that_send() -> None:
    """In the third round rank 0 runs 0F2 and rank 1 runs 1B0: on both sides rank 0's send stands first."""
    schedule = Schedule(
        "x", orders([_row("0F0 0F1 0F2 0B0 0B1 0B2"), _row("1F0 1B0 1F1 1B1 1F2 1B2")]), one_route(2)
    )
    first, second = (" ".join(map(str, row)) for row in place_transfers(schedule))
    assert first == "0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0RECV_B0 0B0 0RECV_B1 0B1 0RECV_B2 0B2"
    assert second == "1RECV_F0 1F0 1RECV_F1 1B0 1RECV_F2 1SEND_B0 1F1 1B1 1SEND_B1 1F2 1B2 1SEND_B2"


def test_receiving_as_late_as_possible_deadlocks_where_sends_wait() -> None:
    """What 1F1B is known for: both neighbours send first. Buffers mend it, and so does posting
    both at once.
    """
    schedule = one_f_one_b(2, 4)
    late = _late(schedule)
    check_transfers(schedule, late, "buffered")
    check_transfers(schedule, late, "batched")
    with pytest.raises(
        BadTransfers,
        match="blocking sends: 0SEND_F1 on rank 0 waits for 1RECV_F1, but rank 1 is stuck before that, at "
        "1SEND_B0",
    ):
        check_transfers(schedule, late, "blocking")


def _late(schedule: Schedule) -> Steps:
    """Sends right behind actions, receives right before those that need them."""
    placed = place_transfers(schedule)
    rows = []
    for row in placed:
        receives = {
            (t.stage, t.kind[-1], t.micro_batch): t for t in row if isinstance(t, Transfer) and not t.sends
        }
        late: list[Step] = []
        for step in row:
            if isinstance(step, Action):
                late += [r for r in (receives.get((step.stage, step.kind, step.micro_batch)),) if r]
            if isinstance(step, Action) or step.sends:
                late.append(step)
        rows.append(tuple(late))
    return tuple(rows)


def sound(schedule: Schedule, steps: Steps, mode: Mode) -> bool:
    """The judge: everything is there once, both sides of each pair of ranks have one order, and no circle of
    waits.

    A group of steps is posted and done; arrows go from what must be before to what is behind it.
    """
    wanted = sorted(str(step) for row in place_transfers(schedule) for step in row)
    if sorted(str(step) for row in steps for step in row) != wanted:
        return False
    home = {stage: rank for rank, order in enumerate(schedule.orders) for stage in {a.stage for a in order}}
    for rank, row in enumerate(steps):
        if any(home[step.stage] != rank for step in row):
            return False
        if [step for step in row if isinstance(step, Action)] != list(schedule.orders[rank]):
            return False
    before: dict[tuple[str, object], set[tuple[str, object]]] = {}
    group_of: dict[Step, object] = {}
    streams: dict[tuple[int, int], object] = {}
    behind: dict[Step, object] = {}
    for rank, row in enumerate(steps):
        last = None
        for number, group in enumerate(_groups(row, mode)):
            key = rank, number
            group_of |= dict.fromkeys(group, key)
            before["done", key] = {("post", key)}
            before["post", key] = {last} if last else set()
            last = "done", key
            if mode == "paired" and isinstance(group[0], Transfer):
                last = "post", key
                pair = rank, home[_partner(schedule, group[0]).stage]
                if pair in streams:
                    behind[group[0]] = streams[pair]
                streams[pair] = key
    lines: dict[tuple[int, int, bool], list[tuple[object, ...]]] = {}
    for rank, row in enumerate(steps):
        for step in row:
            if isinstance(step, Transfer):
                other = _partner(schedule, step)
                if mode != "buffered" or not step.sends:
                    before["done", group_of[step]].add(("post", group_of[other]))
                before["done", group_of[step]].update(
                    ("done", behind[s]) for s in (step, other) if s in behind
                )
                made_or_read = next(a for a in schedule.orders[rank] if _is_of(a, step))
                first, second = (made_or_read, step) if step.sends else (step, made_or_read)
                before["post", group_of[second]].add(("done", group_of[first]))
                pair = (rank, home[other.stage]) if step.sends else (home[other.stage], rank)
                lines.setdefault((*pair, step.sends), []).append(
                    (step.kind[-1], step.micro_batch, _sender(step, other))
                )
    if any(lines[a, b, True] != lines[a, b, False] for a, b, _ in lines):
        return False
    try:
        TopologicalSorter(before).prepare()
    except CycleError:
        return False
    return True


def _groups(row: tuple[Step, ...], mode: Mode) -> Iterator[list[Step]]:
    for together, steps in itertools.groupby(
        row, lambda step: mode == "batched" and isinstance(step, Transfer)
    ):
        group = list(steps)
        yield from [group] if together else ([step] for step in group)


def _partner(schedule: Schedule, step: Transfer) -> Transfer:
    route = schedule.routes[step.micro_batch % len(schedule.routes)]
    onward = step.sends == step.kind.endswith("F")
    other = route[route.index(step.stage) + (1 if onward else -1)]
    kind = f"{'RECV' if step.sends else 'SEND'}_{step.kind[-1]}"
    return Transfer(other, kind, step.micro_batch)  # type: ignore[arg-type]


def _sender(step: Transfer, other: Transfer) -> int:
    return step.stage if step.sends else other.stage


def _is_of(action: Action, step: Transfer) -> bool:
    kinds = "F" if step.kind.endswith("F") else "BI"
    return action.stage == step.stage and action.micro_batch == step.micro_batch and action.kind in kinds


@pytest.mark.slow
@given(st.data())
@settings(max_examples=400, deadline=None)
def test_mutations(data: st.DataObject) -> None:
    schedule = data.draw(st.sampled_from(SMALL))
    steps = [list(row) for row in data.draw(st.sampled_from((place_transfers(schedule), _late(schedule))))]
    for _ in range(data.draw(st.integers(0, 2))):
        row = data.draw(st.sampled_from(steps))
        i, j = data.draw(st.integers(0, len(row) - 1)), data.draw(st.integers(0, len(row) - 1))
        what = data.draw(st.sampled_from(("swap", "move", "near", "drop", "double")))
        if what == "swap":
            row[i], row[j] = row[j], row[i]
        elif what in ("move", "near"):
            row.insert(j if what == "move" else max(0, i - 1), row.pop(i))
        elif what == "double":
            row.insert(j, row[i])
        else:
            del row[i]
    changed = tuple(map(tuple, steps))
    for mode in MODES:
        if sound(schedule, changed, mode):
            check_transfers(schedule, changed, mode)
        else:
            with pytest.raises(BadTransfers):
                check_transfers(schedule, changed, mode)


def test_what_crosses_between_two_ranks_is_named() -> None:
    schedule = one_f_one_b(2, 2)
    rows = (
        "0F0 0RECV_B0 0SEND_F0 0F1 0SEND_F1 0B0 0RECV_B1 0B1",
        "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1",
    )
    steps = tuple(tuple(map(parse_step, row.split())) for row in rows)
    said = (
        "0B0 on rank 0 waits for 0RECV_B0 behind 0RECV_B0 among the transfers with rank 1, "
        "where 1RECV_F0 comes first"
    )
    with pytest.raises(BadTransfers, match=said):
        check_transfers(schedule, steps, "paired")


def test_what_is_wrong_is_named() -> None:
    schedule = one_f_one_b(2, 2)
    first, second = map(list, place_transfers(schedule))

    def refused(one: list[Step], other: list[Step]) -> str:
        with pytest.raises(BadTransfers) as caught:
            check_transfers(schedule, (tuple(one), tuple(other)))
        return str(caught.value)

    send = parse_step("0SEND_F1")
    assert "0SEND_F1 on rank 0 is missing" in refused([s for s in first if s != send], second)
    assert "0SEND_F1 on rank 0 occurs twice" in refused([*first, send], second)
    assert "0SEND_F1 on rank 1 belongs on rank 0" in refused(first, [*second, send])
    assert "1SEND_F0 on rank 1 moves nothing that another rank needs" in refused(
        first, [*second, parse_step("1SEND_F0")]
    )
    assert "1RECV_F0 on rank 1 is where rank 0 sends 0SEND_F1" in refused(
        [send, *(s for s in first if s != send)], second
    )
    early = [s for s in first if s != send]
    early.insert(early.index(Action(0, "F", 1)), send)
    assert "0SEND_F1 on rank 0 comes before 0F1, which it needs" in refused(early, second)


def test_buffers_are_bounded() -> None:
    schedule = Schedule(
        "x", orders([_row("0F0 0F1 0F2 0B0 0B1 0B2"), _row("1F0 1B0 1F1 1B1 1F2 1B2")]), one_route(2)
    )
    steps = place_transfers(schedule)
    peaks = peak_buffers(schedule, steps)
    check_transfers(schedule, steps, room=2)
    with pytest.raises(TooManyBuffers, match="rank 1 keep 2 received values at 1RECV_F2; it has room for 1"):
        check_transfers(schedule, steps, room=1)
    assert peaks == [1, 2]  # rank 1 keeps the input of 1F1 while it runs 1B0, and gets that of 1F2


def _row(text: str) -> list[Action]:
    return [Action.parse(cell) for cell in text.split()]


def test_nothing_is_placed_for_a_schedule_that_is_stuck() -> None:
    stuck = Schedule("x", orders([_row("0B0 0F0")]), one_route(1))
    with pytest.raises(ScheduleStuck, match="0B0"):
        place_transfers(stuck)
