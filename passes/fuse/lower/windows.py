"""Pooling: an element reads its window of pixels; a gradient, the windows that have its pixel."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.lower.gather import Read, outside
from shardc.passes.fuse.lower.moves import static
from shardc.passes.fuse.lower.scalars import Scalar, Scalars, wide
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value

MAX_READS = 25
"""Elements that one element reads at most: their reads are written out."""

Offsets = tuple[int, int]
Each = tuple[Offsets, Scalar, Scalar, Scalar]
"""Of one read: its offsets, its row and column, and whether they are inside."""


@dataclass(frozen=True)
class Windows:
    """Sizes along the rows and the columns: of the pixels, of the results, of a window, steps and padding."""

    pixels: Offsets
    results: Offsets
    kernel: Offsets
    stride: Offsets
    padding: Offsets

    @staticmethod
    def of(call: OpCall, pixels: TensorType, result: TensorType) -> Windows:
        """Raises NotLowered."""
        static(pixels, result)
        kernel = _pair(call["kernel_size"])
        padding = _pair(call["padding"])
        if call["ceil_mode"] or ("max" in call.target and _pair(call["dilation"]) != (1, 1)):
            raise NotLowered("pools windows with holes, or beyond the padding")
        stride = _pair(call["stride"]) if call["stride"] else kernel
        sizes = (_pair(pixels.shape[-2:]), _pair(result.shape[-2:]))
        return Windows(*sizes, kernel, stride, padding)

    def reads(self) -> list[Offsets]:
        """The elements of a window, in order. Raises NotLowered where they are too many."""
        return _grid(self.kernel)

    def sources(self) -> list[Offsets]:
        """How many windows before the last one that has a pixel another one may lie that has it, too."""
        most = [-(-k // step) for k, step in zip(self.kernel, self.stride, strict=True)]
        return _grid((most[0], most[1]))[::-1]

    def pixel(self, s: Scalars, offsets: Offsets, places: Sequence[Scalar]) -> Each:
        """Where an element of the window of the result at ``places`` is."""
        ats, inside = [], s.constant(True, torch.bool)
        for d, place in enumerate(places):
            at = s.add(s.mul(place, self.stride[d]), offsets[d] - self.padding[d])
            at, inside = self._within(s, at, self.pixels[d], inside, always=self.padding[d] == 0)
            ats.append(at)
        return offsets, ats[0], ats[1], inside

    def window(self, s: Scalars, back: Offsets, places: Sequence[Scalar]) -> Each:
        """Which window, ``back`` from the last one, has the pixel at ``places``."""
        ats, inside = [], s.constant(True, torch.bool)
        for d, place in enumerate(places):
            shifted = s.add(place, self.padding[d])
            last = (
                shifted
                if self.stride[d] == 1
                else s.op("arith.divsi", s.pair(shifted, self.stride[d]), torch.int64)
            )
            at = s.sub(last, back[d])
            reach = s.sub(shifted, s.mul(at, self.stride[d]))
            inside = s.bit("and", inside, s.compare("lt", reach, self.kernel[d]))
            at, inside = self._within(s, at, self.results[d], inside)
            ats.append(at)
        return back, ats[0], ats[1], inside

    def _within(
        self, s: Scalars, at: Scalar, size: int, inside: Scalar, always: bool = False
    ) -> tuple[Scalar, Scalar]:
        """An index in bounds, and whether it was."""
        if always:
            return at, inside
        beyond = outside(s, at, 0, size)
        return s.select(beyond, 0, at), s.bit("and", inside, s.logical_not(beyond))


def _pair(numbers: int | Sequence[int]) -> Offsets:
    numbers = [numbers] if isinstance(numbers, int) else list(numbers)
    return numbers[0], numbers[-1]


def _grid(sizes: Offsets) -> list[Offsets]:
    if sizes[0] * sizes[1] > MAX_READS:
        raise NotLowered(f"pools windows of more than {MAX_READS} elements")
    return list(itertools.product(range(sizes[0]), range(sizes[1])))


def _pooled(
    b: Builder, tables: Sequence[Value], type_: TensorType, compute: Callable[..., Scalar], heavy: bool = True
) -> Value:
    """``compute(scalars, *reads, row, column)`` for each element of the result."""
    rank = len(type_.shape)
    kept = [*range(rank - 2), None, None]
    indices = [[rank - 2], [rank - 1]]
    return b.point(compute, [], type_, heavy=heavy, indices=indices, tables=[(t, kept) for t in tables])


@lowers("aten.max_pool2d_with_indices")
def max_pool(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """The largest element, NaN if there is any, and where it is among the pixels: the first, or last NaN."""
    (x,), (type_, places) = values, results(call)
    windows = Windows.of(call, x.type, type_)
    order, (_, width) = windows.reads(), windows.pixels

    def elements(s: Scalars, read: Read, at: Sequence[Scalar]) -> list[tuple[Scalar, Scalar]]:
        found = []
        for offsets in order:
            _, row, column, inside = windows.pixel(s, offsets, at)
            element = s.select(inside, s.cast(read(row, column), s.compute), -inf)
            found.append((element, s.add(s.mul(row, width), column)))
        return found

    def largest(s: Scalars, read: Read, *at: Scalar) -> Scalar:
        (best, _), *others = elements(s, read, at)
        for element, _ in others:
            best = s.maximum(best, element)
        return best

    def place(s: Scalars, read: Read, *at: Scalar) -> Scalar:
        s.compute = x_dtype
        start = [
            s.maximum(s.sub(s.mul(p, n), o), 0)
            for p, n, o in zip(at, windows.stride, windows.padding, strict=True)
        ]
        best, found = s.constant(-inf, s.compute), s.add(s.mul(start[0], width), start[1])
        for element, here in elements(s, read, at):
            better = s.bit("or", s.compare("gt", element, best), s.compare("ne", element, element))
            best, found = s.select(better, element, best), s.select(better, here, found)
        return found

    x_dtype = wide(x.type.dtype)
    return [_pooled(b, [x], type_, largest), _pooled(b, [x], places, place)]


@lowers("aten.max_pool2d_with_indices_backward")
def max_pool_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """The gradients of the windows whose largest element a pixel is."""
    (grad, x, places), (type_,) = values, results(call)
    windows = Windows.of(call, x.type, grad.type)
    order, (_, width) = windows.sources(), windows.pixels

    def compute(s: Scalars, read: Read, place: Read, row: Scalar, column: Scalar) -> Scalar:
        total, own = s.constant(0, s.compute), s.add(s.mul(row, width), column)
        for back in order:
            _, high, low, inside = windows.window(s, back, (row, column))
            taken = s.bit("and", inside, s.compare("eq", place(high, low), own))
            total = s.add(total, s.select(taken, s.cast(read(high, low), s.compute), 0))
        return total

    return [_pooled(b, [grad, places], type_, compute)]


@lowers("aten.avg_pool2d")
def mean_pool(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (x,), (type_,) = values, results(call)
    windows = Windows.of(call, x.type, type_)
    order = windows.reads()

    def compute(s: Scalars, read: Read, *at: Scalar) -> Scalar:
        total = s.constant(0, s.compute)
        for offsets in order:
            _, row, column, inside = windows.pixel(s, offsets, at)
            total = s.add(total, s.select(inside, s.cast(read(row, column), s.compute), 0))
        return s.div(total, _count(s, call, windows, at))

    return [_pooled(b, [x], type_, compute)]


def _count(s: Scalars, call: OpCall, windows: Windows, places: Sequence[Scalar]) -> Scalar:
    """What the sum of a window is divided by: its elements, with the padding's or without them."""
    if call["divisor_override"] or call["count_include_pad"] or windows.padding == (0, 0):
        return s.constant(call["divisor_override"] or windows.kernel[0] * windows.kernel[1], s.compute)
    counts = []
    for d, place in enumerate(places):
        first = s.sub(s.mul(place, windows.stride[d]), windows.padding[d])
        end = s.minimum(s.add(first, windows.kernel[d]), windows.pixels[d])
        counts.append(s.sub(end, s.maximum(first, 0)))
    return s.cast(s.mul(*counts), s.compute)


@lowers("aten.avg_pool2d_backward")
def mean_pool_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (grad, x), (type_,) = values, results(call)
    windows = Windows.of(call, x.type, grad.type)
    order = windows.sources()

    def compute(s: Scalars, read: Read, *at: Scalar) -> Scalar:
        total = s.constant(0, s.compute)
        for back in order:
            _, high, low, inside = windows.window(s, back, at)
            share = s.div(s.cast(read(high, low), s.compute), _count(s, call, windows, (high, low)))
            total = s.add(total, s.select(inside, share, 0))
        return total

    return [_pooled(b, [grad], type_, compute)]
