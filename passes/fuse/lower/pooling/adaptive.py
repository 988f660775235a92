"""Lowerings of adaptive average pooling, whose windows have one or two sizes, and of its gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shardc.dialects.aten.call import OpCall
from shardc.passes.fuse.lower.gather import Read
from shardc.passes.fuse.lower.moves import static
from shardc.passes.fuse.lower.pooling.windows import Offsets, divided, grid, pooled, pooled_dims, within
from shardc.passes.fuse.lower.scalars import Scalar, Scalars
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder
from shardc.passes.fuse.reading.graph import Value


@lowers("aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d")
def adaptive_mean(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower adaptive average pooling.

    Window ``i`` of ``n`` over ``size`` pixels is ``[floor(i * size / n), ceil((i + 1) * size / n))``.
    """
    (x,), (type_,), rank = values, results(call), pooled_dims(call)
    static(x.type, type_)
    pixels, parts = (tuple(t.shape[-rank:]) for t in (x.type, type_))
    order = grid([_largest(size, n) for size, n in zip(pixels, parts, strict=True)])

    def compute(s: Scalars, read: Read, *at: Scalar) -> Scalar:
        total, bounds = s.constant(0, s.compute), _bounds(s, at, pixels, parts)
        for offsets in order:
            ats, inside = [], s.constant(True, torch.bool)
            for d, (first, end) in enumerate(bounds):
                place = s.add(first, offsets[d])
                if offsets[d] >= pixels[d] // parts[d]:
                    inside = s.bit("and", inside, s.compare("lt", place, end))
                    place = s.minimum(place, pixels[d] - 1)
                ats.append(place)
            total = s.add(total, s.select(inside, s.cast(read(*ats), s.compute), 0))
        return s.div(total, _elements(s, bounds))

    return [pooled(b, [x], type_, rank, compute, len(order))]


@lowers("aten._adaptive_avg_pool2d_backward", "aten._adaptive_avg_pool3d_backward")
def adaptive_mean_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower the gradient: each pixel sums its shares of the gradients of the windows that contain it."""
    (grad, _), (type_,), rank = values, results(call), pooled_dims(call)
    static(grad.type, type_)
    pixels, parts = (tuple(t.shape[-rank:]) for t in (type_, grad.type))
    order = grid([_largest(n, size) for size, n in zip(pixels, parts, strict=True)])

    def compute(s: Scalars, read: Read, *at: Scalar) -> Scalar:
        total = s.constant(0, s.compute)
        for offsets in order:
            ats, inside = [], s.constant(True, torch.bool)
            for d, place in enumerate(at):
                window = s.add(divided(s, s.mul(place, parts[d]), pixels[d]), offsets[d])
                window, inside = within(s, window, parts[d], inside, sure=offsets[d] == 0)
                ats.append(window)
            bounds = _bounds(s, ats, pixels, parts)
            for (first, end), place in zip(bounds, at, strict=True):
                inside = s.bit("and", inside, s.compare("le", first, place))
                inside = s.bit("and", inside, s.compare("lt", place, end))
            share = s.div(s.cast(read(*ats), s.compute), _elements(s, bounds))
            total = s.add(total, s.select(inside, share, 0))
        return total

    return [pooled(b, [grad], type_, rank, compute, len(order))]


def _largest(size: int, parts: int) -> int:
    """Return the number of pixels of the largest of ``parts`` windows over ``size`` pixels."""
    return max(-(-(i + 1) * size // parts) - i * size // parts for i in range(parts))


def _bounds(
    s: Scalars, places: Sequence[Scalar], pixels: Offsets, parts: Offsets
) -> list[tuple[Scalar, Scalar]]:
    """Return, for each dim, a window's first pixel and the pixel after its last one."""
    bounds = []
    for place, size, n in zip(places, pixels, parts, strict=True):
        scaled = s.mul(place, size)
        bounds.append((divided(s, scaled, n), divided(s, s.add(scaled, size + n - 1), n)))
    return bounds


def _elements(s: Scalars, bounds: Sequence[tuple[Scalar, Scalar]]) -> Scalar:
    counts = [s.sub(end, first) for first, end in bounds]
    elements = counts[0]
    for count in counts[1:]:
        elements = s.mul(elements, count)
    return s.cast(elements, s.compute)
