"""Lower bound of the time of a step's kernels, divided evenly among devices and micro-batches."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.cost.ops import FILL, DeviceRates, attention_s, other_flops_s, pass_s
from shardc.cost.step.work import Item


def kernels_s(items: Sequence[Item], phase: str, parts: int, rates: DeviceRates) -> float:
    """Return the least seconds of one of ``parts`` even parts of a device's kernels in a phase.

    The parts of a kernel may be unequal, but their mean takes no less: the time of a pass over memory is
    convex in its bytes, and that of products grows at least as their FLOP. A product takes no less than
    without waves, in the fastest tiles; if its sum is split, its parts take longer.
    """
    return sum(_part_s(item, parts, rates) for item in items if item.phase == phase)


def _part_s(item: Item, parts: int, rates: DeviceRates) -> float:
    flops, size_bytes = item.flops / parts, item.moved_bytes / parts
    if item.kind == "collective":
        return 0.0
    if item.kind == "memory":
        return pass_s(size_bytes, item.is_plain, rates)
    if item.product is not None:
        reached = rates.matmul_reached * rates.flop_s(item.product.element_bytes)
        arithmetic_s = flops * (1 + FILL / item.product.k) / reached if flops else 0.0
        traffic_s = item.product.moved_bytes / parts / (rates.stream_reached * rates.memory_bytes_s)
        return rates.launch_s + max(arithmetic_s, traffic_s)
    if item.kind == "attention":
        return attention_s(flops, size_bytes, item.element_bytes, item.phase == "backward", rates)
    return other_flops_s(flops, size_bytes, item.element_bytes, rates)
