"""Lower bound of a pipeline's plan from its program before it is cut into stages, and its cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardc.cost.step.costs import Costs
from shardc.cost.step.work import Item, StepWork
from shardc.planning.bounds.holdings import Holding
from shardc.planning.bounds.pipelined import Shape

BULK = 1e6
"""Collectives cost what so much larger ones cost for each byte: a cut program may join several into one."""


def fullest_bytes(held: Sequence[Holding], shape: Shape, *, has_whole_sums: bool) -> float:
    """Return the least bytes on a device of the fullest stage.

    ``held``: what each stage holds. ``has_whole_sums``: whether devices add up gradients as large as their
    parameters over micro-batches.
    """
    sums = 1 if has_whole_sums and shape.has_sums else 0
    return max(
        holding.parameter_bytes * (1 + sums) + holding.state_bytes + count * sum(s for s, _ in holding.kept)
        for holding, count in zip(held, shape.in_flight, strict=True)
    )


def step_s(shallow: StepWork, deeper: StepWork, more: int, costs: Costs, shape: Shape) -> float:
    """Return the least seconds of a step with ``more`` further layers like the one that ``deeper`` has more.

    Cut into stages, a micro-batch waits at each cut for what would overlap, so it takes no less. Only loops
    over micro-batches count.
    """
    if shape.micro_batches == 1:
        return 0.0
    bulk = replace(costs, collective_s=lambda item: _bulk_s(item, costs))
    parts = zip(*(_seconds(work, bulk, shape) for work in (shallow, deeper)), strict=True)
    return shape.step_s(*(few_s + more * (longer_s - few_s) for few_s, longer_s in parts))


def _seconds(work: StepWork, costs: Costs, shape: Shape) -> tuple[float, float]:
    """Return the seconds of a micro-batch, and those of the items behind its last one of forward."""
    loops = [section.items for section in work.ranks[0] if section.times == shape.micro_batches]
    all_s = sum(costs.play(items).seconds for items in loops)
    return all_s, sum(costs.play(_behind_forward(items)).seconds for items in loops)


def _behind_forward(items: Sequence[Item]) -> list[Item]:
    end = max((number for number, item in enumerate(items, 1) if item.phase == "forward"), default=0)
    return [replace(item, needs=tuple(n - end for n in item.needs if n >= end)) for item in items[end:]]


def _bulk_s(item: Item, costs: Costs) -> float:
    return costs.collective_s(replace(item, moved_bytes=item.moved_bytes * BULK)) / BULK
