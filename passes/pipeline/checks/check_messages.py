"""Check that messages, which have no tags at run time, match their receives and never deadlock.

Transfers between two ranks, in both directions, run one after the other, in the order in which they start
(streams of NCCL; Gloo keeps an order for each direction).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import NoReturn

from shardc.passes.pipeline.checks.rank_events import Event

Refuse = Callable[[int, str, Event | None], NoReturn]
"""Raises the error of a rank's problem at an event."""


def check_messages(ranks: Sequence[Sequence[Event]], refuse: Refuse) -> None:
    """Check the events of all ranks: for each pair one order of transfers on both sides, and no deadlock.

    A send and its receive must have the same tag and types.
    """
    lines = _lines(ranks, refuse)
    for rank, peer in [pair for pair in lines if pair[0] < pair[1] or pair[::-1] not in lines]:
        both = itertools.zip_longest(lines[rank, peer], lines.get((peer, rank), []))
        for number, (ours, theirs) in enumerate(both, 1):
            if ours is None or theirs is None or not _match(ours, theirs):
                there = "nothing" if theirs is None else _text(theirs)
                what = "nothing" if ours is None else _text(ours)
                refuse(
                    rank, f"{what} is transfer {number} with rank {peer}, where that rank has {there}", ours
                )
    _play(ranks, refuse)


def _lines(ranks: Sequence[Sequence[Event]], refuse: Refuse) -> dict[tuple[int, int], list[Event]]:
    """Map (rank, other rank) to the transfers between them that the rank starts, in order."""
    lines: dict[tuple[int, int], list[Event]] = {}
    for rank, events in enumerate(ranks):
        for event in events:
            if event.kind in ("send", "receive"):
                if event.peer == rank or not 0 <= event.peer < len(ranks):
                    refuse(rank, f"{_text(event)} is with rank {event.peer}", event)
                lines.setdefault((rank, event.peer), []).append(event)
    return lines


def _match(ours: Event, theirs: Event) -> bool:
    return {ours.kind, theirs.kind} == {"send", "receive"} and (ours.label, ours.types) == (
        theirs.label,
        theirs.types,
    )


def _text(event: Event) -> str:
    return f"the {event.kind} of {event.label}{f' ({event.types})' if event.types else ''}"


def _play(ranks: Sequence[Sequence[Event]], refuse: Refuse) -> None:
    """Simulate the ranks: run every event that waits for nothing, until no event can run."""
    at = [0] * len(ranks)
    started: dict[tuple[int, int], int] = {}
    numbers: dict[Hashable, int] = {}
    moved = True
    while moved:
        moved = False
        for rank, events in enumerate(ranks):
            while at[rank] < len(events):
                event = events[at[rank]]
                line, back = (rank, event.peer), (event.peer, rank)
                if event.kind == "wait" and started.get(back, 0) <= numbers[rank, event.reads[0]]:
                    break
                if event.kind in ("send", "receive"):
                    numbers.update(((rank, handle), started.get(line, 0)) for handle in event.makes)
                    started[line] = started.get(line, 0) + 1
                at[rank] += 1
                moved = True
    for rank, events in enumerate(ranks):
        if at[rank] < len(events):
            event = events[at[rank]]
            problem = f"it waits forever for {event.label} of rank {event.peer}"
            refuse(rank, problem, event)
