"""Windows of pixels in one to three dims."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.lower.gather import outside
from shardc.passes.fuse.lower.moves import static
from shardc.passes.fuse.lower.scalars import Scalar, Scalars
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value

MAX_READS = 32
"""Elements that one element reads at most: their reads are written out."""

Offsets = tuple[int, ...]
Each = tuple[list[Scalar], Scalar]
"""Position of a read in each dim, and whether it is inside the tensor."""


@dataclass(frozen=True)
class Windows:
    """Sizes along each pooled dim: of the pixels, of the results, of a window, steps, padding, and distances
    of a window's elements. With ``ceil`` the last windows may reach beyond the padding.
    """

    pixels: Offsets
    results: Offsets
    kernel: Offsets
    stride: Offsets
    padding: Offsets
    dilation: Offsets
    ceil: bool

    @staticmethod
    def of(call: OpCall, pixels: TensorType, result: TensorType) -> Windows:
        """Raises NotLowered."""
        static(pixels, result)
        rank = pooled_dims(call)
        kernel, padding = (_of_each(call[name], rank) for name in ("kernel_size", "padding"))
        dilation = _of_each(call["dilation"] if "max" in call.target else 1, rank)
        stride = _of_each(call["stride"], rank) if call["stride"] else kernel
        sizes = (tuple(pixels.shape[-rank:]), tuple(result.shape[-rank:]))
        return Windows(*sizes, kernel, stride, padding, dilation, bool(call["ceil_mode"]))

    def reads(self) -> list[Offsets]:
        """The elements of a window, in order. Raises NotLowered where they are too many."""
        return grid(self.kernel)

    def sources(self) -> list[Offsets]:
        """Return the offsets, back from the last window with a pixel, of all windows that may contain it."""
        extents = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        return grid([-(-e // step) for e, step in zip(extents, self.stride, strict=True)])[::-1]

    def pixel(self, s: Scalars, offsets: Offsets, places: Sequence[Scalar]) -> Each:
        """Where an element of the window of the result at ``places`` is."""
        ats, inside = [], s.constant(True, torch.bool)
        for d, place in enumerate(places):
            at = s.add(s.mul(place, self.stride[d]), offsets[d] * self.dilation[d] - self.padding[d])
            sure = self.padding[d] == 0 and not self.ceil
            at, inside = within(s, at, self.pixels[d], inside, sure=sure)
            ats.append(at)
        return ats, inside

    def window(self, s: Scalars, back: Offsets, places: Sequence[Scalar]) -> Each:
        """Which window, ``back`` from the last one, has the pixel at ``places``."""
        ats, inside = [], s.constant(True, torch.bool)
        for d, place in enumerate(places):
            shifted = s.add(place, self.padding[d])
            at = s.sub(divided(s, shifted, self.stride[d]), back[d])
            reach = s.sub(shifted, s.mul(at, self.stride[d]))
            holes = self.dilation[d]
            inside = s.bit("and", inside, s.compare("lt", reach, (self.kernel[d] - 1) * holes + 1))
            if holes > 1:
                on_it = s.compare("eq", s.sub(reach, s.mul(divided(s, reach, holes), holes)), 0)
                inside = s.bit("and", inside, on_it)
            at, inside = within(s, at, self.results[d], inside)
            ats.append(at)
        return ats, inside


def pooled_dims(call: OpCall) -> int:
    """How many dims the call pools, by its name."""
    return next(n for n in (1, 2, 3) if f"pool{n}d" in call.target)


def within(s: Scalars, at: Scalar, size: int, inside: Scalar, sure: bool = False) -> tuple[Scalar, Scalar]:
    """An index in bounds, and whether it was there; ``sure`` says that it is."""
    if sure:
        return at, inside
    beyond = outside(s, at, 0, size)
    return s.select(beyond, 0, at), s.bit("and", inside, s.logical_not(beyond))


def divided(s: Scalars, x: Scalar, by: int) -> Scalar:
    """The whole part of an i64 that is not negative over a number."""
    return x if by == 1 else s.op("arith.divsi", s.pair(x, by), torch.int64)


def flat(s: Scalars, places: Sequence[Scalar], sizes: Offsets) -> Scalar:
    """The number of a pixel, row by row."""
    number = places[0]
    for place, size in zip(places[1:], sizes[1:], strict=True):
        number = s.add(s.mul(number, size), place)
    return number


def grid(sizes: Sequence[int]) -> list[Offsets]:
    """All offsets below ``sizes``, the last dim first. Raises NotLowered where they are too many."""
    if prod(sizes) > MAX_READS:
        raise NotLowered(f"pools windows of more than {MAX_READS} elements")
    return list(itertools.product(*map(range, sizes)))


def pooled(
    b: Builder, tables: Sequence[Value], type_: TensorType, rank: int, compute: Callable[..., Scalar]
) -> Value:
    """``compute(scalars, *reads, *places)`` for each element; the last ``rank`` dims are pooled."""
    outer = len(type_.shape) - rank
    kept = [*range(outer), *[None] * rank]
    indices = [[outer + d] for d in range(rank)]
    return b.point(compute, [], type_, heavy=True, indices=indices, tables=[(t, kept) for t in tables])


def _of_each(numbers: int | Sequence[int], rank: int) -> Offsets:
    numbers = [numbers] if isinstance(numbers, int) else list(numbers)
    return tuple(numbers * rank if len(numbers) == 1 else numbers)
