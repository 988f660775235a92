"""Lower bound of the time of a step's kernels, divided evenly among devices and micro-batches."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.cost.ops import DeviceRates, attention_s, least_product_s, other_flops_s, pass_s
from shardc.cost.step.work import Item


def kernels_s(items: Sequence[Item], phase: str, parts: int, rates: DeviceRates) -> float:
    """Return the least seconds of one of ``parts`` even parts of a device's kernels in a phase.

    The parts of a kernel may be unequal, but their mean takes no less: the time of a pass over memory is
    convex in its bytes, and that of products grows at least as their FLOP.
    """
    return sum(_part_s(item, parts, rates) for item in items if item.phase == phase)


def _part_s(item: Item, parts: int, rates: DeviceRates) -> float:
    flops, size_bytes = item.computed_flops / parts, item.moved_bytes / parts
    if item.kind == "collective":
        return 0.0
    if item.kind == "memory":
        return pass_s(size_bytes, item.is_plain, rates)
    if item.product is not None:
        return least_product_s(item.product, parts, rates)
    if item.kind == "attention":
        return attention_s(flops, size_bytes, item.element_bytes, item.phase == "backward", rates)
    return other_flops_s(flops, size_bytes, item.element_bytes, rates)
