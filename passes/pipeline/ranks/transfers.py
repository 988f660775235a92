"""Placement of sends and receives between a schedule's actions, in an order that never deadlocks."""

from __future__ import annotations

from shardc.diagnostics.passes.pipeline import ScheduleStuck
from shardc.dialects.pipe.action import Action, Step, Steps, Transfer
from shardc.dialects.pipe.dependence import Dependences
from shardc.dialects.pipe.schedule import Schedule


def place_transfers(schedule: Schedule) -> Steps:
    """Return each rank's actions with its sends and receives. Raises ScheduleStuck.

    The schedule is simulated in rounds, in each of which a rank runs one action. A value for another rank is
    sent directly after the action that computed it, and received after the actions that the other rank has
    run by then. So all lists follow one global order of transfers, which never deadlocks, even if sends wait
    for their receives.
    """
    readers = _readers(schedule)
    needs = Dependences(schedule).needs
    steps: list[list[Step]] = [[] for _ in schedule.orders]
    at = [0] * schedule.ranks
    done = set[Action]()
    left = len([*schedule.actions()])
    while left:
        orders = enumerate(zip(schedule.orders, at, strict=True))
        heads = [(rank, order[i]) for rank, (order, i) in orders if i < len(order)]
        ready = [(r, action) for r, action in heads if all(needed in done for needed in needs(action))]
        if not ready:
            raise ScheduleStuck(schedule=schedule.name, actions=", ".join(str(action) for _, action in heads))
        for rank, action in ready:
            steps[rank].append(action)
            at[rank] += 1
        for rank, action in ready:
            for reader in readers.get(action, ()):
                send, receive = transfer(action, reader, schedule)
                steps[rank].append(send)
                steps[schedule.rank_of[reader.stage]].append(receive)
        done.update(action for _, action in ready)
        left -= len(ready)
    return tuple(map(tuple, steps))


def transfer(made: Action, reader: Action, schedule: Schedule) -> tuple[Transfer, Transfer]:
    """Return the send and the receive of the value that ``made`` computed for ``reader``."""
    sends, receives = ("SEND_F", "RECV_F") if made.kind == "F" else ("SEND_B", "RECV_B")
    to, source = (reader.stage, made.stage) if schedule.reads else (None, None)
    send = Transfer(made.stage, sends, made.micro_batch, to)
    return send, Transfer(reader.stage, receives, made.micro_batch, source)


def _readers(schedule: Schedule) -> dict[Action, list[Action]]:
    """Map each action to the actions of other ranks that need its result."""
    found: dict[Action, list[Action]] = {}
    needs = Dependences(schedule).needs
    for action in schedule.actions():
        for needed in needs(action):
            if schedule.rank_of[needed.stage] != schedule.rank_of[action.stage]:
                found.setdefault(needed, []).append(action)
    return found
