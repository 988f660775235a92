"""Zero-bubble schedules on one stage a rank (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, §3)."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.cost.pipeline import StageCost
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.schedules.list_scheduling import fill_holes
from shardc.passes.pipeline.schedules.one_f_one_b import one_stage


def zb_h1(ranks: int, micro_batches: int, costs: Sequence[StageCost] | None = None) -> Schedule:
    """1F1B whose weight gradients wait for idle time: about a third of its bubble, its first rank's memory.

    Idle time depends on ``costs`` (of each stage; equal ones if not given); the order is right for any.
    """
    queues = [[one_stage(rank, "I", micro_batches, ranks - rank - 1)] for rank in range(ranks)]
    return fill_holes("zb-h1", queues, ranks, costs, held=ranks)


def zb_h2(ranks: int, micro_batches: int, costs: Sequence[StageCost] | None = None) -> Schedule:
    """Forwards enough ahead that no rank waits for the first backward: no bubble where all times are equal,
    and ``2 * ranks - 1`` micro-batches' activations on every rank.
    """
    queues = [[one_stage(rank, "I", micro_batches, 2 * (ranks - rank - 1))] for rank in range(ranks)]
    return fill_holes("zb-h2", queues, ranks, costs, held=2 * ranks - 1)
