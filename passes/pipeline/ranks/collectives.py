"""Places of collectives among a schedule's actions: where ranks gather parameters and reduce gradients."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain

from shardc.dialects.pipe.action import Action, Collective, CollectiveKind, Step, Steps
from shardc.dialects.pipe.schedule import Schedule


def place_collectives(
    schedule: Schedule, steps: Steps, wanted: Mapping[int, Collection[CollectiveKind]]
) -> Steps:
    """``steps`` with the collectives that each stage has ``wanted``, each once a step.

    Gradients are reduced right behind the last action that adds to them, so that the reduction travels while
    the rank goes on with other stages. Parameters are gathered ahead of the action before the stage's first
    one, for the same reason (ahead of the list if there is none), and let go of behind its last one.
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
