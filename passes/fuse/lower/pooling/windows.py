"""``Windows``: positions of pooling windows over one to three dims, and expressions to index them."""

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
"""Largest number of reads per element. Reads are unrolled."""

Offsets = tuple[int, ...]
Each = tuple[list[Scalar], Scalar]
"""Position of a read in each dim, and whether it is inside the tensor."""


@dataclass(frozen=True)
class Windows:
    """Sizes of windows along each pooled dim.

    ``pixels``, ``results``: sizes of the input and of the result. ``kernel``: elements of a window.
    ``dilation``: distance between them. ``ceil``: True if the last window may extend beyond the padding.
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
        """Return the windows of a call. Raises NotLowered for symbolic sizes."""
        static(pixels, result)
        rank = pooled_dims(call)
        kernel, padding = (_of_each(call[name], rank) for name in ("kernel_size", "padding"))
        dilation = _of_each(call["dilation"] if "max" in call.target else 1, rank)
        stride = _of_each(call["stride"], rank) if call["stride"] else kernel
        sizes = (tuple(pixels.shape[-rank:]), tuple(result.shape[-rank:]))
        return Windows(*sizes, kernel, stride, padding, dilation, bool(call["ceil_mode"]))

    def reads(self) -> list[Offsets]:
        """Return the offsets of a window's elements, in order. Raises NotLowered for too many."""
        return grid(self.kernel)

    def sources(self) -> list[Offsets]:
        """Return the numbers of all windows that may contain a pixel, in each dim: how far a window is back
        from the last one with it, or, with holes, as which element the window has it.
        """
        dims = zip(self.kernel, self.stride, self.dilation, strict=True)
        return grid([-(-k // step) if holes == 1 else k for k, step, holes in dims])[::-1]

    def pixel(self, s: Scalars, offsets: Offsets, places: Sequence[Scalar]) -> Each:
        """Return the position of the element ``offsets`` in the window of the result at ``places``."""
        ats, inside = [], s.constant(True, torch.bool)
        for d, place in enumerate(places):
            at = s.add(s.mul(place, self.stride[d]), offsets[d] * self.dilation[d] - self.padding[d])
            sure = self.padding[d] == 0 and not self.ceil
            at, inside = within(s, at, self.pixels[d], inside, sure=sure)
            ats.append(at)
        return ats, inside

    def window(self, s: Scalars, back: Offsets, places: Sequence[Scalar]) -> Each:
        """Return the window with the number ``back`` of :meth:`sources` for the pixel at ``places``.

        The flag is True if the window exists and contains the pixel.
        """
        ats, inside = [], s.constant(True, torch.bool)
        for d, place in enumerate(places):
            holes, step = self.dilation[d], self.stride[d]
            first = s.add(place, self.padding[d] - (back[d] * holes if holes > 1 else 0))
            at = divided(s, first, step)
            if holes == 1:
                at = s.sub(at, back[d])
                inside = s.bit("and", inside, s.compare("lt", s.sub(first, s.mul(at, step)), self.kernel[d]))
            else:  # the window begins there if a step leads to it; a negative quotient is outside
                inside = s.bit("and", inside, s.compare("eq", s.mul(at, step), first))
            at, inside = within(s, at, self.results[d], inside)
            ats.append(at)
        return ats, inside


def pooled_dims(call: OpCall) -> int:
    """Return the number of pooled dims, by the call's name."""
    return next(n for n in (1, 2, 3) if f"pool{n}d" in call.target)


def within(s: Scalars, at: Scalar, size: int, inside: Scalar, sure: bool = False) -> tuple[Scalar, Scalar]:
    """Return the index ``at``, or 0 if it is out of bounds, and ``inside and`` whether it was in bounds.

    ``sure``: True if the index is known to be in bounds.
    """
    if sure:
        return at, inside
    beyond = outside(s, at, 0, size)
    return s.select(beyond, 0, at), s.bit("and", inside, s.logical_not(beyond))


def divided(s: Scalars, x: Scalar, by: int) -> Scalar:
    """Return ``x // by`` for an i64 ``x`` that is not negative."""
    return x if by == 1 else s.op("arith.divsi", s.pair(x, by), torch.int64)


def flat(s: Scalars, places: Sequence[Scalar], sizes: Offsets) -> Scalar:
    """Return the row-major index of a pixel."""
    number = places[0]
    for place, size in zip(places[1:], sizes[1:], strict=True):
        number = s.add(s.mul(number, size), place)
    return number


def grid(sizes: Sequence[int]) -> list[Offsets]:
    """Return all offsets below ``sizes`` in row-major order. Raises NotLowered for more than MAX_READS."""
    if prod(sizes) > MAX_READS:
        raise NotLowered(f"has windows of more than {MAX_READS} elements")
    return list(itertools.product(*map(range, sizes)))


def pooled(
    b: Builder,
    tables: Sequence[Value],
    type_: TensorType,
    rank: int,
    compute: Callable[..., Scalar],
    count: int,
) -> Value:
    """Return ``compute(scalars, *reads, *places)`` of each element. The last ``rank`` dims are pooled.

    ``reads``: functions that read each of ``tables`` at indices of the pooled dims, ``count`` times each.
    """
    outer = len(type_.shape) - rank
    kept = [*range(outer), *[None] * rank]
    indices = [[outer + d] for d in range(rank)]
    read = [(table, kept) for table in tables]
    return b.point(compute, [], type_, heavy=True, indices=indices, tables=read, reads=count)


def _of_each(numbers: int | Sequence[int], rank: int) -> Offsets:
    numbers = [numbers] if isinstance(numbers, int) else list(numbers)
    return tuple(numbers * rank if len(numbers) == 1 else numbers)
