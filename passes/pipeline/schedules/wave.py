"""Wave schedules: stages go back and forth over the ranks several times."""

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
    """Hanayo: waves of forwards and backwards that fill each other's gaps (Liu et al., Hanayo, SC23).

    A free rank runs the forward of its last ready stage, or a backward; the preference is that with the
    shorter step. Parameters are held once, and activations are at most 1.5 times those of 1F1B's first rank.
    ``stages_per_rank``, twice the number of waves, must be even. ``costs`` has an entry for each stage.
    """
    stages = ranks * stages_per_rank

    def played(backward_first: bool) -> Schedule:
        placed = [zigzag(rank, ranks, stages_per_rank) for rank in range(ranks)]
        queues = [furthest_first(mine, "B", micro_batches, backward_first) for mine in placed]
        return fill_holes("hanayo", queues, stages, costs, held=1.5 * stages)

    found = (played(True), played(False))
    return min(found, key=lambda schedule: simulate(schedule, costs or [EQUAL] * stages).step_s)
