"""Waves: stages go forth and back over the ranks any number of times."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.cost.pipeline import StageCost
from shardc.cost.simulate import simulate
from shardc.dialects.pipe.schedule import Schedule, one_route
from shardc.passes.pipeline.schedules.list_scheduling import list_schedule
from shardc.passes.pipeline.schedules.one_f_one_b import furthest_first
from shardc.passes.pipeline.schedules.placement import zigzag
from shardc.passes.pipeline.schedules.zero_bubble import EQUAL


def hanayo(
    ranks: int, micro_batches: int, stages_per_rank: int = 2, costs: Sequence[StageCost] | None = None
) -> Schedule:
    """Waves of forwards and backwards that fill each other's gaps, without parameters held twice (Liu et al.,
    Hanayo, SC23).

    Whenever a rank is free it runs the forward that is furthest on, or a backward; which of them goes first
    is whichever makes the shorter step. A rank holds at most half more than 1F1B's first one.
    ``stages_per_rank``, twice the number of waves, must be even. ``costs``: of each stage.
    """
    stages = ranks * stages_per_rank
    costs = costs or [EQUAL] * stages
    memory_limit_bytes = 1.5 * stages * max(cost.activation_bytes for cost in costs)

    def played(backward_first: bool) -> Schedule:
        placed = [zigzag(rank, ranks, stages_per_rank) for rank in range(ranks)]
        queues = [furthest_first(mine, "B", micro_batches, backward_first) for mine in placed]
        return list_schedule("hanayo", queues, one_route(stages), costs, memory_limit_bytes)

    return min((played(True), played(False)), key=lambda schedule: simulate(schedule, costs).step_s)
