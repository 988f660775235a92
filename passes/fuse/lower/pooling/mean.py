"""Lowerings of average pooling and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from shardc.dialects.aten.call import OpCall
from shardc.passes.fuse.lower.gather import Read
from shardc.passes.fuse.lower.pooling.windows import Windows, pooled, pooled_dims
from shardc.passes.fuse.lower.scalars import Scalar, Scalars
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder
from shardc.passes.fuse.reading.graph import Value


@lowers("aten.avg_pool2d", "aten.avg_pool3d")
def mean_pool(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower average pooling: the sum over a window divided by the number of its elements."""
    (x,), (type_,) = values, results(call)
    windows = Windows.of(call, x.type, type_)
    order = windows.reads()

    def compute(s: Scalars, read: Read, *at: Scalar) -> Scalar:
        total = s.constant(0, s.compute)
        for offsets in order:
            pixel, inside = windows.pixel(s, offsets, at)
            total = s.add(total, s.select(inside, s.cast(read(*pixel), s.compute), 0))
        return s.div(total, _count(s, call, windows, at))

    return [pooled(b, [x], type_, pooled_dims(call), compute, len(order))]


@lowers("aten.avg_pool2d_backward", "aten.avg_pool3d_backward")
def mean_pool_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower the gradient: each pixel sums its shares of the gradients of the windows that contain it."""
    (grad, x), (type_,) = values, results(call)
    windows = Windows.of(call, x.type, grad.type)
    order = windows.sources()

    def compute(s: Scalars, read: Read, *at: Scalar) -> Scalar:
        total = s.constant(0, s.compute)
        for back in order:
            window, inside = windows.window(s, back, at)
            share = s.div(s.cast(read(*window), s.compute), _count(s, call, windows, window))
            total = s.add(total, s.select(inside, share, 0))
        return total

    return [pooled(b, [grad], type_, pooled_dims(call), compute, len(order))]


def _count(s: Scalars, call: OpCall, windows: Windows, places: Sequence[Scalar]) -> Scalar:
    """Return the divisor of a window's sum: the number of its elements, with or without padding."""
    padded = bool(call["count_include_pad"])
    if call["divisor_override"] or (not windows.ceil and (padded or not any(windows.padding))):
        return s.constant(call["divisor_override"] or prod(windows.kernel), s.compute)
    counts = []
    for d, place in enumerate(places):
        first = s.sub(s.mul(place, windows.stride[d]), windows.padding[d])
        last = windows.pixels[d] + (windows.padding[d] if padded else 0)
        end = s.minimum(s.add(first, windows.kernel[d]), last)
        counts.append(s.sub(end, first if padded else s.maximum(first, 0)))
    elements = counts[0]
    for count in counts[1:]:
        elements = s.mul(elements, count)
    return s.cast(elements, s.compute)
