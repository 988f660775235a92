"""Lowerings of maximum pooling with indices, and of its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import torch

from shardc.dialects.aten.call import OpCall
from shardc.passes.fuse.lower.gather import Read
from shardc.passes.fuse.lower.pooling.windows import Windows, flat, pooled, pooled_dims
from shardc.passes.fuse.lower.scalars import Scalar, Scalars, wide
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder
from shardc.passes.fuse.reading.graph import Value


@lowers("aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices")
def max_pool(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower maximum pooling to the largest element and its index among the pixels.

    The index is that of the first largest element. If there are NaNs, the results are NaN and the last
    NaN's index.
    """
    (x,), (type_, places), rank = values, results(call), pooled_dims(call)
    windows = Windows.of(call, x.type, type_)
    order = windows.reads()

    def elements(s: Scalars, read: Read, at: Sequence[Scalar]) -> list[tuple[Scalar, Scalar]]:
        found = []
        for offsets in order:
            pixel, inside = windows.pixel(s, offsets, at)
            element = s.select(inside, s.cast(read(*pixel), s.compute), -inf)
            found.append((element, flat(s, pixel, windows.pixels)))
        return found

    def largest(s: Scalars, read: Read, *at: Scalar) -> Scalar:
        (best, _), *others = elements(s, read, at)
        for element, _ in others:
            best = s.maximum(best, element)
        return best

    def place(s: Scalars, read: Read, *at: Scalar) -> Scalar:
        s.compute = wide(x.type.dtype)
        first = [_first_inside(s, windows, d, place) for d, place in enumerate(at)]
        best, found = s.constant(-inf, s.compute), flat(s, first, windows.pixels)
        for element, here in elements(s, read, at):
            better = s.bit("or", s.compare("gt", element, best), s.compare("ne", element, element))
            best, found = s.select(better, element, best), s.select(better, here, found)
        return found

    return [pooled(b, [x], type_, rank, largest, len(order)), pooled(b, [x], places, rank, place, len(order))]


def _first_inside(s: Scalars, windows: Windows, d: int, place: Scalar) -> Scalar:
    """Return the index of a window's first element that is not padding, in one dim."""
    holes = windows.dilation[d]
    start = s.sub(s.mul(place, windows.stride[d]), windows.padding[d])
    if holes == 1:
        return s.maximum(start, 0)
    before = -(-windows.padding[d] // holes) * holes  # added so that the dividend is not negative
    shifted = s.add(start, before)
    rest = s.sub(shifted, s.mul(s.op("arith.divsi", s.pair(shifted, holes), torch.int64), holes))
    return s.select(s.compare("lt", start, 0), rest, start)


@lowers("aten.max_pool2d_with_indices_backward", "aten.max_pool3d_with_indices_backward")
def max_pool_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower the gradient: each pixel sums the gradients of the windows whose largest element it is."""
    (grad, x, places), (type_,) = values, results(call)
    windows = Windows.of(call, x.type, grad.type)
    order = windows.sources()

    def compute(s: Scalars, read: Read, place: Read, *at: Scalar) -> Scalar:
        total, own = s.constant(0, s.compute), flat(s, at, windows.pixels)
        for back in order:
            window, inside = windows.window(s, back, at)
            taken = s.bit("and", inside, s.compare("eq", place(*window), own))
            total = s.add(total, s.select(taken, s.cast(read(*window), s.compute), 0))
        return total

    return [pooled(b, [grad, places], type_, pooled_dims(call), compute, len(order))]
