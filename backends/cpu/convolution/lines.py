"""One dim of pixels of a convolution: where a window's elements lie in the prepared image.

A prepared image has zeros where windows reach beyond the input. Along the innermost dim, pixels that a
strided convolution reads together are adjacent in it: each *phase* has every ``stride``-th pixel. A
transposed convolution of stride s is s convolutions of stride 1, one for each *residue* of a result's
position modulo s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Tap:
    """Element of a window: its ``number`` in the weight; ``phase`` and ``offset`` of position 0's pixel."""

    number: int
    phase: int
    offset: int


@dataclass(frozen=True)
class Line:
    """One dim. A result's element ``len(residues) * j + r`` is the sum over ``residues[r]``.

    ``size``: pixels of the input. ``made``: pixels of the result. ``count``: number of positions j.
    ``step``: prepared elements from a position to the next. Element q of phase f is the input's pixel
    ``starts[f] + apart * q``, or zero if there is none. ``length``: elements of each phase.
    """

    size: int
    made: int
    count: int
    residues: tuple[tuple[Tap, ...], ...]
    step: int
    starts: tuple[int, ...]
    apart: int
    length: int

    @property
    def lies(self) -> bool:
        """Return whether the prepared elements are adjacent pixels of the input."""
        (start, *more), apart = self.starts, self.apart
        return not more and apart == 1 and start >= 0 and start + self.length <= self.size

    @property
    def is_trivial(self) -> bool:
        """Return whether each element of the result reads the pixel at its own position."""
        return self.residues == ((Tap(0, 0, 0),),) and self.lies and self.size == self.made and self.step == 1

    def inside(self, phase: int) -> tuple[int, int]:
        """Return the range of a phase's elements that are pixels of the input."""
        start, apart = self.starts[phase], self.apart
        low, high = max(0, -(start // apart)), min(self.length, -(-(self.size - start) // apart))
        return low, max(low, high)

    def scaled(self, pixels: int) -> Line:
        """Return this line with ``pixels`` adjacent pixels for each of its own. It must have stride 1."""
        taps = tuple(replace(tap, offset=tap.offset * pixels) for tap in self.residues[0])
        sizes = (self.size * pixels, self.made * pixels, self.count * pixels)
        start = self.starts[0] * pixels
        return Line(*sizes, (taps,), 1, (start,), 1, self.length * pixels)

    def spread(self) -> Line:
        """Return this line with a phase for each tap. It must have one residue, and adjacent positions."""
        starts = tuple(self.starts[tap.phase] + self.apart * tap.offset for tap in self.residues[0])
        taps = tuple(Tap(tap.number, phase, 0) for phase, tap in enumerate(self.residues[0]))
        return replace(self, residues=(taps,), starts=starts, length=self.count)

    @property
    def is_scalable(self) -> bool:
        return len(self.residues) == 1 and self.step == 1 and self.apart == 1


def progression(taps: tuple[Tap, ...]) -> tuple[int, int, int, int]:
    """Return first number, first offset, and the steps of both from tap to tap.

    Taps of one residue are evenly spaced, except in lines with several phases.
    """
    first, second = taps[0], taps[min(1, len(taps) - 1)]
    return first.number, first.offset, second.number - first.number, second.offset - first.offset


def forward_line(
    size: int, made: int, window: int, stride: int, padding: int, dilation: int, phases: bool
) -> Line:
    """Return a dim of a convolution. ``phases``: split the input by the stride."""
    places = [t * dilation for t in range(window)]
    if not phases or stride == 1:
        taps = tuple(Tap(t, 0, place) for t, place in enumerate(places))
        return Line(size, made, made, (taps,), stride, (-padding,), 1, stride * (made - 1) + places[-1] + 1)
    read = sorted({place % stride for place in places})
    taps = tuple(Tap(t, read.index(place % stride), place // stride) for t, place in enumerate(places))
    starts = tuple(phase - padding for phase in read)
    return Line(size, made, made, (taps,), 1, starts, stride, made + places[-1] // stride)


def transposed_line(size: int, made: int, window: int, stride: int, padding: int, dilation: int) -> Line:
    """Return a dim of a transposed convolution."""
    reads = [
        [
            (t, (r + padding - t * dilation) // stride)
            for t in range(window)
            if (r + padding - t * dilation) % stride == 0
        ]
        for r in range(stride)
    ]
    every = [place for residue in reads for _, place in residue]
    first, last = min(every), max(every)
    residues = tuple(tuple(Tap(t, 0, place - first) for t, place in residue) for residue in reads)
    count = -(-made // stride)
    return Line(size, made, count, residues, 1, (first,), 1, count + last - first)
