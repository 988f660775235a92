"""Placement of collectives between a schedule's actions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain

from shardc.dialects.pipe.action import Action, Collective, CollectiveKind, Step, Steps
from shardc.dialects.pipe.schedule import Schedule


def place_collectives(
    schedule: Schedule, steps: Steps, wanted: Mapping[int, Collection[CollectiveKind]]
) -> Steps:
    """Insert the ``wanted`` collectives of each stage into ``steps``, each once a step.

    Gradients are reduced directly after the last action that adds to them, so that the reduction overlaps
    with other stages' actions. For the same reason parameters are gathered before the action that precedes
    the stage's first action, or at the start of the list. They are freed after the stage's last action.
    """
    return tuple(_placed(list(row), schedule.rank_of, rank, wanted) for rank, row in enumerate(steps))


def _placed(
    row: list[Step], rank_of: Mapping[int, int], rank: int, wanted: Mapping[int, Collection[CollectiveKind]]
) -> tuple[Step, ...]:
    ahead: dict[int, list[Step]] = {}
    behind: dict[int, list[Step]] = {}
    places = [(at, step) for at, step in enumerate(row) if isinstance(step, Action)]
    for stage in sorted(stage for stage, home in rank_of.items() if home == rank):
        kinds = wanted.get(stage, ())
        mine = [number for number, (_, action) in enumerate(places) if action.stage == stage]
        if "UNSHARD" in kinds:
            before = places[mine[0] - 1][0] if mine[0] else 0
            ahead.setdefault(before, []).append(Collective(stage, "UNSHARD"))
        if "REDUCE_GRAD" in kinds:
            last = max(number for number in mine if places[number][1].kind != "F")
            behind.setdefault(places[last][0], []).append(Collective(stage, "REDUCE_GRAD"))
        if "RESHARD" in kinds:
            behind.setdefault(places[mine[-1]][0], []).append(Collective(stage, "RESHARD"))
    found = ((*ahead.get(at, ()), step, *behind.get(at, ())) for at, step in enumerate(row))
    return tuple(chain.from_iterable(found))
