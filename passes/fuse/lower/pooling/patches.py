"""Lowerings of windows as columns (``F.unfold``), and of their sums (``F.fold``)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.lower.gather import Read
from shardc.passes.fuse.lower.moves import static
from shardc.passes.fuse.lower.pooling.windows import Windows, flat, within
from shardc.passes.fuse.lower.scalars import Scalar, Scalars
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value


@lowers("aten.im2col")
def columns(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower the windows of [batch, channel, y, x] as [batch, channel x window, windows]."""
    (x,), (type_,) = values, results(call)
    windows, split = _windows(call, x.type, type_)
    outer = len(x.type.shape) - 2

    def compute(s: Scalars, read: Read, *places: Scalar) -> Scalar:
        ats, inside = [], s.constant(True, torch.bool)
        for d, (element, window) in enumerate(zip(places[:2], places[2:], strict=True)):
            at = s.add(s.mul(window, windows.stride[d]), s.mul(element, windows.dilation[d]))
            at = s.sub(at, windows.padding[d])
            at, inside = within(s, at, windows.pixels[d], inside, sure=windows.padding[d] == 0)
            ats.append(at)
        return s.select(inside, s.cast(read(*ats), s.compute), 0)

    tables = [(x, [*range(outer), None, None])]
    indices = [[outer + d] for d in range(4)]
    made = b.point(compute, [], type_.with_shape(split), indices=indices, tables=tables)
    return [b.reshape(made, type_.shape)]


@lowers("aten.col2im")
def sums_of_columns(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower the sum of windows at their places: each pixel adds up the windows that contain it."""
    (x,), (type_,) = values, results(call)
    windows, _ = _windows(call, type_, x.type)
    outer, sources = len(type_.shape) - 2, windows.sources()

    def compute(s: Scalars, read: Read, channel: Scalar, *places: Scalar) -> Scalar:
        total = s.constant(0, s.compute)
        for back in sources:
            ats, inside = windows.window(s, back, places)
            row = channel
            for d, (place, at) in enumerate(zip(places, ats, strict=True)):
                first = s.sub(s.add(place, windows.padding[d]), s.mul(at, windows.stride[d]))
                element = s.constant(back[d], torch.int64) if windows.dilation[d] > 1 else first
                row = s.add(s.mul(row, windows.kernel[d]), s.select(inside, element, 0))
            found = read(row, flat(s, ats, windows.results))
            total = s.add(total, s.select(inside, s.cast(found, s.compute), 0))
        return total

    tables = [(x, [*range(outer - 1), None, None])]
    indices = [[outer - 1 + d] for d in range(3)]
    return [b.point(compute, [], type_, indices=indices, tables=tables, reads=len(sources))]


def _windows(call: OpCall, pixels: TensorType, columns: TensorType) -> tuple[Windows, tuple[int, ...]]:
    """Return the windows, and the shape [batch, channel, y, x of a window, y, x of windows] of columns."""
    static(pixels, columns)
    numbers = (tuple(call[name]) for name in ("kernel_size", "dilation", "padding", "stride"))
    kernel, dilation, padding, stride = (n * 2 if len(n) == 1 else n for n in numbers)
    *outer, height, width = pixels.shape
    dims = zip((height, width), kernel, dilation, padding, stride, strict=True)
    counts = tuple((size + 2 * p - d * (k - 1) - 1) // step + 1 for size, k, d, p, step in dims)
    split = (*outer, *kernel, *counts)
    if 0 in split:
        raise NotLowered("has no windows")
    return Windows((height, width), counts, kernel, stride, padding, dilation, False), split
