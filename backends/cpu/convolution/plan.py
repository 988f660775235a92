"""Division of a convolution into register tiles, and the layouts of the memory that they read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from shardc.backends.cpu.convolution.lines import Line, Tap, forward_line, transposed_line
from shardc.backends.cpu.host import vector_lanes, vector_registers
from shardc.cost.work import PREPARED_BYTES
from shardc.dialects.kern.convolution import Convolution

MOST_VECTORS = 8
"""Most vectors of pixels in a register tile."""
CROSSING = 1.4
"""Cost of a vector's load, of which some cross a cache line, over a broadcast's."""
WAITING = 4.0
"""Cycles from the sum of a term to that of the next."""
SPARE = 1
"""Registers that a tile leaves: of one that takes all, LLVM stores and loads again some in the loop."""
COPY_ROW, GAIN = 12, 0.85
"""Cycles to copy a row besides its elements, and the part of the time below which an image is flat."""
NEAR_BYTES, FAR = 24 << 10, 1.25
"""Bytes that a tile may read of a flat image to stay in the first cache, and the cost of reading more."""
UNROLLED = 36
"""Most elements of a window that are written out; the outer dims of larger windows are loops."""
WIDEST = 32
"""Most elements of a window along the innermost dim, which is always written out."""
BLOCK = 1024
"""Terms that are summed from zero before they are added to a sum, for its error (decision 16)."""
CROWDED = 4
"""Most rows that a window reads in one set of the first cache, if the input is read in place."""
PADS = 4
"""Number of pads to try between planes and between channels, in cache lines."""
SETS = 64
"""Sets of the first cache, which is as large on all CPUs in use: a page holds one line of each."""
LINE = 16
"""Elements of a cache line."""

Taps = tuple[tuple[Tap, ...], tuple[Tap, ...], tuple[Tap, ...]]
"""Elements of a window that a residue reads, along each of three dims."""


@dataclass(frozen=True)
class Plan:
    """A convolution of three dims of pixels; missing ones have one pixel. Sizes are in elements.

    A register tile has ``rows`` channels of the result for ``vectors`` vectors of pixels. Vectors are
    numbered along the result's pixels. The last one along the innermost dim overlaps the one before it, and
    computes some pixels again, so that no store is masked.

    If it ``is_flat``, the prepared image has, for each element of a window along the innermost dim, the rows
    that it reads, and nothing between them. Then vectors go on from row to row, which suits narrow images.
    """

    spec: Convolution
    lines: tuple[Line, Line, Line]
    lanes: int
    rows: int
    vectors: int
    is_flat: bool = False

    @staticmethod
    def of(spec: Convolution, rows: int = 0, vectors: int = 0) -> Plan:
        """Return the plan. ``rows`` and ``vectors`` of the register tile: 0 for those that fit."""
        lines, lanes = _lines(spec), vector_lanes()
        flat = _flat(spec, lines, lanes)
        plan = Plan(spec, flat or lines, lanes, 1, 1, flat is not None)
        found = _tile(spec.channels[1])
        rows, vectors = rows or found[0], vectors or found[1]
        return replace(plan, rows=rows, vectors=min(vectors, plan.count))

    @property
    def channels(self) -> int:
        """Return the input's channels in a group."""
        return self.spec.channels[0]

    @property
    def made(self) -> int:
        """Return the result's channels in a group."""
        return self.spec.channels[1]

    @property
    def images(self) -> int:
        """Return the number of images: one for each sample and group."""
        return self.spec.input.shape[0] * self.spec.groups

    @property
    def row_tiles(self) -> int:
        return -(-self.made // self.rows)

    @property
    def across(self) -> tuple[int, int]:
        """Return the rows of a plane, and a row's positions, as vectors are numbered."""
        _, y, x = self.lines
        return (1, y.count * x.count) if self.is_flat else (y.count, x.count)

    @property
    def pieces(self) -> int:
        """Return the vectors of a row."""
        return -(-self.across[1] // self.lanes)

    @property
    def is_whole(self) -> bool:
        """Return whether a vector has no more lanes than a row has positions."""
        return self.across[1] >= self.lanes

    @property
    def count(self) -> int:
        """Return the vectors of an image, for each residue."""
        return self.lines[0].count * self.across[0] * self.pieces

    @property
    def tiles(self) -> int:
        return -(-self.count // self.vectors)

    @property
    def residues(self) -> tuple[int, int, int]:
        z, y, x = (len(line.residues) for line in self.lines)
        return z, y, x

    @property
    def every_residue(self) -> list[tuple[int, int, int]]:
        z, y, x = self.residues
        return [(a, b, c) for a in range(z) for b in range(y) for c in range(x)]

    @property
    def windows(self) -> tuple[int, int, int]:
        """Return the elements of a window along each dim."""
        z, y, x = (sum(map(len, line.residues)) for line in self.lines)
        return z, y, x

    def taps(self, residue: tuple[int, int, int]) -> Taps:
        z, y, x = (line.residues[r] for line, r in zip(self.lines, residue, strict=True))
        return z, y, x

    def before(self, residue: tuple[int, int, int]) -> int:
        """Return the number of taps of earlier residues."""
        every = self.every_residue
        return sum(prod(map(len, self.taps(each))) for each in every[: every.index(residue)])

    @property
    def window(self) -> int:
        """Return the elements of a window."""
        return prod(self.spec.window)

    @property
    def most_taps(self) -> int:
        return max(1, prod(max(map(len, line.residues)) for line in self.lines))

    @property
    def block(self) -> int:
        """Return the channels of the input whose terms are summed from zero."""
        block = max(1, BLOCK // self.most_taps)
        return self.channels if 2 * self.channels <= 3 * block else block

    def is_looped(self, dim: int) -> bool:
        """Return whether a window's elements along a dim are a loop."""
        return prod(max(map(len, line.residues)) for line in self.lines[dim:]) > UNROLLED

    # The image that tiles read: [channels, z, y, phases of x, x]; a flat one: [channels, z, phases, y, x].

    @cached_property
    def lies(self) -> bool:
        """Return whether tiles read the input in place."""
        if self.is_flat or not self.is_whole or not all(line.lies for line in self.lines):
            return False
        z, y, x = (line.size for line in self.lines)
        return self._crowded(x, x * y, x * y * z) <= CROWDED

    @cached_property
    def _padded(self) -> tuple[int, int]:
        """Return the distances of planes and channels: with those pads that use most sets of the cache."""
        plane = self.pitch * len(self.lines[2].starts) * self.lines[1].length
        tried = [
            (plane + LINE * more, (plane + LINE * more) * self.lines[0].length + LINE * rest)
            for more in range(PADS if self.lines[0].length > 1 else 1)
            for rest in range(PADS)
        ]
        return min(tried, key=lambda distances: self._crowded(self.row, *distances))

    def _crowded(self, row: int, plane: int, apart: int) -> int:
        """Return how many rows that a window reads, over all channels, share one set of the first cache."""
        z, y, _ = (max(map(len, line.residues)) for line in self.lines)
        starts = (
            (c * apart + a * plane + b * row)
            for c in range(self.channels)
            for a in range(z)
            for b in range(y)
        )
        return max(Counter(start // LINE % SETS for start in starts).values())

    @property
    def pitch(self) -> int:
        line = self.lines[2]
        if self.is_flat:
            return line.length
        return line.size if self.lies else line.length + max(0, self.lanes - line.count)

    @property
    def row(self) -> int:
        return self.pitch if self.is_flat else self.pitch * len(self.lines[2].starts)

    @property
    def phase(self) -> int:
        """Return the distance of a row's phases."""
        return self.pitch * self.lines[1].length if self.is_flat else self.pitch

    @property
    def plane(self) -> int:
        return self.row * self.lines[1].size if self.lies else self._padded[0]

    @property
    def apart(self) -> int:
        """Return the distance of channels."""
        return self.plane * self.lines[0].size if self.lies else self._padded[1]

    @property
    def start(self) -> int:
        """Return the offset of the first element that is read."""
        z, y, x = (line.starts[0] for line in self.lines)
        return z * self.plane + y * self.row + x if self.lies else 0

    @property
    def size(self) -> int:
        return self.apart * self.channels

    def weights(self, residue: tuple[int, int, int]) -> int:
        """Return where a residue's part of a row tile's packed weights begins."""
        return self.before(residue) * self.channels * self.rows

    @property
    def packed(self) -> int:
        """Return the packed weights of a row tile."""
        return self.window * self.channels * self.rows


def _flat(spec: Convolution, lines: tuple[Line, Line, Line], lanes: int) -> tuple[Line, Line, Line] | None:
    """Return the lines of a flat image, if it takes less time than another; else None."""
    z, y, x = lines
    if len(y.residues) > 1 or len(x.residues) > 1 or y.step > 1 or y.count * x.count < lanes:
        return None
    flat, (given, made) = (z, y, x.spread()), spec.channels

    def cycles(lines: tuple[Line, Line, Line], vectors: int) -> float:
        z, y, x = lines
        sums = z.count * vectors * given * prod(spec.window) * made / 2
        if all(line.lies for line in lines):
            return sums
        return sums + given * z.length * y.length * len(x.starts) * (COPY_ROW + 2 * x.length / lanes)

    # Each row tile reads two vectors for each element of the window, from separate copies of rows.
    slower = FAR if given * prod(spec.window) * 2 * lanes * 4 > NEAR_BYTES else 1.0
    time = slower * cycles(flat, -(-y.count * x.count // lanes))
    return flat if time < GAIN * cycles(lines, y.count * -(-x.count // lanes)) else None


def _tile(made: int) -> tuple[int, int]:
    """Return the rows and vectors of the register tile with the least cost for ``made`` channels.

    The cost is in cycles for each sum: of fused multiply-adds, of which two begin in a cycle, of loads, and
    of waiting for sums where a tile has few. Rows beyond the last are computed in vain. Of equally good tiles
    the smallest is chosen, with the fewest loads.
    """
    registers = vector_registers()

    def cost(tile: tuple[int, int]) -> tuple[float, int, float]:
        rows, vectors = tile
        sums = rows * vectors
        cycles = max(sums / 2, (rows + CROSSING * vectors) / 2, WAITING)
        vain = -(-made // rows) * rows / made
        return round(vain * cycles / sums, 2), sums, rows + CROSSING * vectors

    tiles = [
        (rows, vectors)
        for rows in range(1, min(made, registers) + 1)
        for vectors in range(1, MOST_VECTORS + 1)
        if rows * vectors + vectors + SPARE < registers
    ]
    return min(tiles, key=cost)


def is_planned(spec: Convolution) -> bool:
    """Return whether the backend has code for a convolution: short windows, images that fit a buffer."""
    if max(map(len, _lines(spec)[2].residues)) > WIDEST:
        return False
    plan = Plan.of(spec)
    return plan.lies or 4 * plan.size <= PREPARED_BYTES


def _lines(spec: Convolution) -> tuple[Line, Line, Line]:
    sizes = spec.input.shape[2:], spec.out.shape[2:], spec.window
    dims = list(zip(*sizes, spec.stride, spec.padding, spec.dilation, strict=True))
    if spec.transposed:
        lines = [transposed_line(*dim) for dim in dims]
    else:
        lines = [forward_line(*dim, phases=at == len(dims) - 1) for at, dim in enumerate(dims)]
    trivial = forward_line(1, 1, 1, 1, 0, 1, phases=False)
    z, y, x = [trivial] * (3 - len(lines)) + lines
    for _ in range(2):  # rows of pixels that windows do not leave are one row
        if x.is_trivial and y.is_scalable:
            z, y, x = trivial, z, y.scaled(x.size)
    return z, y, x
