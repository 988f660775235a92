"""Waves: stages go forth and back over the ranks any number of times."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.cost.pipeline import StageCost
from shardc.cost.simulate import simulate
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.schedules.list_scheduling import EQUAL, fill_holes
from shardc.passes.pipeline.schedules.one_f_one_b import furthest_first
from shardc.passes.pipeline.schedules.placement import zigzag


def hanayo(
    ranks: int, micro_batches: int, stages_per_rank: int = 2, costs: Sequence[StageCost] | None = None
) -> Schedule:
    """Waves of forwards and backwards that fill each other's gaps (Liu et al., Hanayo, SC23).

    Whenever a rank is free it runs the forward that is furthest on, or a backward; first goes whichever makes
    the shorter step. Parameters are held once, activations at most half more than on 1F1B's first rank.
    ``stages_per_rank``, twice the number of waves, must be even. ``costs``: of each stage.
    """
    stages = ranks * stages_per_rank

    def played(backward_first: bool) -> Schedule:
        placed = [zigzag(rank, ranks, stages_per_rank) for rank in range(ranks)]
        queues = [furthest_first(mine, "B", micro_batches, backward_first) for mine in placed]
        return fill_holes("hanayo", queues, stages, costs, held=1.5 * stages)

    found = (played(True), played(False))
    return min(found, key=lambda schedule: simulate(schedule, costs or [EQUAL] * stages).step_s)
