"""Zero-bubble schedules on one stage a rank (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, §3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardc.cost.pipeline import StageCost
from shardc.dialects.pipe.schedule import Schedule, one_route
from shardc.passes.pipeline.schedules.list_scheduling import list_schedule
from shardc.passes.pipeline.schedules.one_f_one_b import one_stage

EQUAL = StageCost(1.0, 1.0, 1.0, activation_bytes=1.0, weight_bytes=1.0)
"""The costs in which schedules are usually drawn: forward, input and weight gradient take as long."""


def zb_h1(ranks: int, micro_batches: int, costs: Sequence[StageCost] | None = None) -> Schedule:
    """1F1B whose weight gradients wait for idle time: about a third of its bubble, and no more memory than
    its first rank's.

    Idle time depends on ``costs`` (of each stage; equal ones if not given); the order is right for any.
    """
    return _zero_bubble("zb-h1", ranks, micro_batches, costs, lambda rank: ranks - rank - 1, ranks)


def zb_h2(ranks: int, micro_batches: int, costs: Sequence[StageCost] | None = None) -> Schedule:
    """More forwards before the first backward, so that no rank waits for it: no bubble where all times are
    equal, and ``2 * ranks - 1`` micro-batches' activations on every rank.
    """
    return _zero_bubble(
        "zb-h2", ranks, micro_batches, costs, lambda rank: 2 * (ranks - rank - 1), 2 * ranks - 1
    )


def _zero_bubble(
    name: str,
    ranks: int,
    micro_batches: int,
    costs: Sequence[StageCost] | None,
    ahead: Callable[[int], int],
    held: int,
) -> Schedule:
    costs = costs or [EQUAL] * ranks
    queues = [[one_stage(rank, "I", micro_batches, ahead(rank))] for rank in range(ranks)]
    memory_limit_bytes = held * max(cost.activation_bytes for cost in costs)
    return list_schedule(name, queues, one_route(ranks), costs, memory_limit_bytes)
