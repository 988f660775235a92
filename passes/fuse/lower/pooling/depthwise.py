"""Lowering of depthwise convolutions to weighted sums of windows. Libraries compute other convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.lower.gather import Read
from shardc.passes.fuse.lower.moves import static
from shardc.passes.fuse.lower.pooling.windows import Windows
from shardc.passes.fuse.lower.scalars import Scalar, Scalars
from shardc.passes.fuse.lower.table import given, lowers, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value


@lowers("aten.convolution")
def depthwise(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower a depthwise convolution of [batch, channel, *pixels].

    The result is the bias plus the sum, over a window, of element times weight.
    """
    x, weight, bias = given(call, values)
    (type_,) = results(call)
    assert x is not None and weight is not None
    windows = _windows(call, x.type, weight.type, type_)
    order, rank = windows.reads(), len(windows.pixels)

    def compute(s: Scalars, *terms: Scalar | Read) -> Scalar:
        *added, pixel, share = terms[:-rank]
        read, weigh = cast(Read, pixel), cast(Read, share)
        at = cast("Sequence[Scalar]", terms[-rank:])
        total = cast(Scalar, added[0]) if added else s.constant(0, s.compute)
        for offsets in order:
            place, inside = windows.pixel(s, offsets, at)
            taps = [s.constant(n, torch.int64) for n in (0, *offsets)]
            element = s.select(inside, read(*place), 0)
            total = s.add(total, s.mul(element, weigh(*taps)))
        return total

    per_channel = [b.seen(bias, (*bias.type.shape, *[1] * rank))] if bias is not None else []
    nones: list[int | None] = [None] * rank
    tables = [(x, [0, 1, *nones]), (weight, [1, None, *nones])]
    indices = [[2 + d] for d in range(rank)]
    reads = len(order)
    return [b.point(compute, per_channel, type_, heavy=True, indices=indices, tables=tables, reads=reads)]


def _windows(call: OpCall, pixels: TensorType, weight: TensorType, result: TensorType) -> Windows:
    static(pixels, weight, result)
    channels, rank = pixels.shape[1], len(pixels.shape) - 2
    is_depthwise = channels > 1 and weight.shape[1] == 1 and weight.shape[0] == channels == call["groups"]
    if call["transposed"] or not is_depthwise or pixels.dtype not in (torch.float32, torch.float64):
        raise NotLowered("is not a depthwise convolution of f32 or f64; a library computes it")
    numbers = (tuple(call[name]) for name in ("stride", "padding", "dilation"))
    stride, padding, dilation = (n * rank if len(n) == 1 else n for n in numbers)
    sizes = (tuple(pixels.shape[2:]), tuple(result.shape[2:]), tuple(weight.shape[2:]))
    return Windows(*sizes, stride, padding, dilation, False)
