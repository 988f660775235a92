"""Placement of sends and receives between a schedule's actions, in an order that never deadlocks."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.diagnostics.passes.pipeline import ScheduleStuck
from shardc.dialects.pipe.action import Action, Step, Steps, Transfer
from shardc.dialects.pipe.dependence import Dependences
from shardc.dialects.pipe.eviction import Eviction, places
from shardc.dialects.pipe.schedule import Schedule


def place_transfers(schedule: Schedule) -> Steps:
    """Return each rank's actions with its sends and receives. Raises ScheduleStuck.

    The schedule is simulated in rounds, in each of which a rank runs one action. A value for another rank is
    sent directly after the action that computed it, and received after the actions that the other rank has
    run by then. So all lists follow one global order of transfers, which never deadlocks, even if sends wait
    for their receives. Evicted activations are transferred when both ranks have reached the places that the
    schedule gives; before that neither goes on.
    """
    readers = _readers(schedule)
    needs = Dependences(schedule).needs
    steps: list[list[Step]] = [[] for _ in schedule.orders]
    at = [0] * schedule.ranks
    done = set[Action]()
    left = len([*schedule.actions()])
    moves = _moves(schedule)
    while left:
        moves = _place_moves(moves, steps, at)
        held = {rank for move in moves for rank, place, _ in move if at[rank] == place}
        orders = enumerate(zip(schedule.orders, at, strict=True))
        heads = [(rank, order[i]) for rank, (order, i) in orders if i < len(order)]
        free = [(rank, action) for rank, action in heads if rank not in held]
        ready = [(r, action) for r, action in free if all(needed in done for needed in needs(action))]
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


_End = tuple[int, int, Transfer]
"""A rank, the number of its actions that run before, and its transfer."""


def _moves(schedule: Schedule) -> list[tuple[_End, _End]]:
    """Return the transfers of evicted activations, each with its sender's and its receiver's end."""
    found, place = list[tuple[_End, _End]](), places(schedule.orders) if schedule.evictions else {}
    for eviction in schedule.evictions:
        forward, backward, _ = place[eviction.stage, eviction.micro_batch]
        home, (out, back) = schedule.rank_of[eviction.stage], eviction_transfers(eviction)
        found.append(((home, forward + 1, out[0]), (eviction.rank, eviction.accepted, out[1])))
        found.append(((eviction.rank, eviction.returned, back[0]), (home, backward - 1, back[1])))
    return found


def _place_moves(
    moves: list[tuple[_End, _End]], steps: list[list[Step]], at: Sequence[int]
) -> list[tuple[_End, _End]]:
    """Place the transfers whose ends both ranks have reached, and return the others."""
    left = []
    for move in moves:
        if all(at[rank] == place for rank, place, _ in move):
            for rank, _, step in move:
                steps[rank].append(step)
        else:
            left.append(move)
    return left


def eviction_transfers(eviction: Eviction) -> tuple[tuple[Transfer, Transfer], tuple[Transfer, Transfer]]:
    """Return the send and the receive of evicted activations, and those that bring them back."""
    out, accept, back, load = (
        Transfer(eviction.stage, kind, eviction.micro_batch) for kind in ("EVICT", "ACCEPT", "RETURN", "LOAD")
    )
    return (out, accept), (back, load)


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
