"""Zero-bubble schedules with one stage for each rank (Qi et al., Zero Bubble, ICLR 2024, section 3)."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.cost.pipeline import StageCost
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.stage_graph import Reads
from shardc.passes.pipeline.schedules.list_scheduling import fill_holes
from shardc.passes.pipeline.schedules.one_f_one_b import one_stage, stages_behind


def zb_h1(
    ranks: int, micro_batches: int, costs: Sequence[StageCost] | None = None, reads: Reads = ()
) -> Schedule:
    """ZB-H1: 1F1B with weight gradients in idle time: about a third of its bubble, at its first rank's
    memory.

    Idle times depend on ``costs`` (one for each stage, default equal); the order is valid for any costs.
    ``reads``: what each stage reads, if stages are no chain.
    """
    ahead = stages_behind(ranks, reads)
    queues = [[one_stage(rank, "I", micro_batches, ahead[rank])] for rank in range(ranks)]
    return fill_holes("zb-h1", queues, ranks, costs, held=1 + max(ahead), reads=reads)


def zb_h2(
    ranks: int, micro_batches: int, costs: Sequence[StageCost] | None = None, reads: Reads = ()
) -> Schedule:
    """ZB-H2: enough forwards ahead that no rank waits for the first backward.

    There is no bubble if all times are equal; every rank holds activations of ``2 * ranks - 1``
    micro-batches. ``reads``: what each stage reads, if stages are no chain; the longest path then counts as
    the ranks.
    """
    ahead = stages_behind(ranks, reads)
    queues = [[one_stage(rank, "I", micro_batches, 2 * ahead[rank])] for rank in range(ranks)]
    return fill_holes("zb-h2", queues, ranks, costs, held=2 * max(ahead) + 1, reads=reads)
