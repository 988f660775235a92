"""Two pipelines in opposite directions over the same ranks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from shardc.cost.pipeline import StageCost
from shardc.cost.simulate import simulate
from shardc.diagnostics.passes.pipeline import ScheduleStuck
from shardc.dialects.pipe.action import Action, Kind
from shardc.dialects.pipe.schedule import Orders, Schedule, orders
from shardc.passes.pipeline.schedules.list_scheduling import EQUAL, list_schedule


def chimera(ranks: int, micro_batches: int, costs: Sequence[StageCost] | None = None) -> Schedule:
    """Even micro-batches go down the ranks, odd ones up (Li and Hoefler, Chimera, SC21).

    Stage ``ranks + s`` holds the same parameters as stage s, on rank ``ranks - 1 - s``; their gradients must
    be added. ``ranks`` must be even. A rank holds ``ranks / 2 + 1`` to ``ranks`` activations, as in the paper
    (table 2). Of three orders that do it is the one of the shortest step: the paper's units of ``ranks``
    micro-batches one behind the other, which close up where F and B take as long, and whatever can run with
    forwards or backwards first, which closes up further where B takes longer and there are several units.
    ``costs``: of each of the ``ranks`` stages.
    """
    costs = [*(costs or [EQUAL] * ranks)] * 2
    routes = (tuple(range(ranks)), tuple(range(ranks, 2 * ranks)))
    units = Schedule("chimera", _units(ranks, micro_batches), routes)
    memory_limit_bytes = ranks * max(cost.activation_bytes for cost in costs)
    found = [units]
    for backward_first in (True, False):
        with suppress(ScheduleStuck):  # the directions may fill each other's memory
            queues = _queues(ranks, micro_batches, backward_first)
            found.append(list_schedule("chimera", queues, routes, costs, memory_limit_bytes))
    return min(found, key=lambda schedule: simulate(schedule, costs).step_s)


def _units(ranks: int, micro_batches: int) -> Orders:
    """Section 3.1: in a unit the directions never want a rank at once, where F and B take one moment each."""
    lists = []
    for rank in range(ranks):
        timed = []
        for direction, position in enumerate((rank, ranks - 1 - rank)):
            for turn, m in enumerate(range(direction, micro_batches, 2)):
                unit, place = divmod(turn, ranks // 2)
                start = 2 * ranks * unit + 2 * place
                stage = direction * ranks + position
                timed.append((start + position, Action(stage, "F", m)))
                timed.append((start + 2 * ranks - 1 - position, Action(stage, "B", m)))
        lists.append([action for _, action in sorted(timed)])
    return orders(lists)


def _queues(ranks: int, micro_batches: int, backward_first: bool) -> list[list[list[Action]]]:
    """Of the two directions, the one in which the rank is nearer to the end of the pipeline goes first."""
    kinds: tuple[Kind, Kind] = ("B", "F") if backward_first else ("F", "B")
    queues = []
    for rank in range(ranks):
        places = sorted(((rank, 0), (ranks - 1 - rank, 1)), reverse=True)
        queues.append(
            [
                [Action(direction * ranks + at, kind, m) for m in range(direction, micro_batches, 2)]
                for kind in kinds
                for at, direction in places
            ]
        )
    return queues
