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
    (table 2). The result is the order with the shortest step among three. One has the paper's units of
    ``ranks`` micro-batches in sequence, which leave no gaps if F and B take equal time. The others are
    greedy, with forwards or backwards first; they have fewer gaps if B takes longer and there are several
    units. ``costs`` has an entry for each of the ``ranks`` stages.
    """
    costs = [*(costs or [EQUAL] * ranks)] * 2
    routes = (tuple(range(ranks)), tuple(range(ranks, 2 * ranks)))
    units = Schedule("chimera", _units(ranks, micro_batches), routes)
    memory_limit_bytes = ranks * max(cost.activation_bytes for cost in costs)
    found = [units]
    for backward_first in (True, False):
        with suppress(ScheduleStuck):  # one direction may exhaust the memory of the other
            queues = _queues(ranks, micro_batches, backward_first)
            found.append(list_schedule("chimera", queues, routes, costs, memory_limit_bytes))
    return min(found, key=lambda schedule: simulate(schedule, costs).step_s)


def _units(ranks: int, micro_batches: int) -> Orders:
    """Return the orders of section 3.1: in a unit the directions never collide if F and B take equal time."""
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
    """Return the queues of each rank; the direction in which the rank is nearer to the pipeline's end is
    first.
    """
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
