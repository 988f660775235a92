"""Packing of a matmul's operands in the order in which register tiles read them, with casts and scales.

Tiles are always whole: rows and columns beyond the end repeat the last one, and their results are not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from shardc.backends.cpu.emit.buffers import Buffers, width
from shardc.backends.cpu.emit.element import Count, Elements
from shardc.backends.cpu.emit.loops import bounded_loop, either
from shardc.backends.cpu.lanes.lanes import transposed
from shardc.backends.cpu.matmul.tiles import Tiles
from shardc.dialects.kern.size import AnySize

At = Callable[[ir.Value, ir.Value], ir.Value]
"""Function ``at(row or column, k)`` that computes an element of the operand."""
Into = tuple[ir.Value, ir.Value]
"""Packed memory, and the start of a panel in it."""

LINE = 16
"""Padding between rows of the left operand, in elements, to avoid conflicts in one cache set."""


@dataclass(frozen=True)
class Left:
    """Block of the left operand.

    Element (i, k) of the tile that begins at row r is at ``r * per_row + i * row + k * step``, where k is a
    multiple of the tiles' ``terms``. ``along_k``: contiguous along k. ``uneven``: tiles may extend beyond the
    last row, and then read that row again.
    """

    buffer: ir.Value
    along_k: bool
    per_row: AnySize
    row: AnySize
    step: int
    uneven: bool = False

    def offset(self, elements: Elements, i: int, last: ir.Value) -> ir.Value:
        """Return the offset of row ``i`` from the tile's first row.

        ``last``: number of the last valid row.
        """
        if not self.uneven:
            return elements.number(i * self.row)
        return arith.muli(arith.minui(elements.number(i), last), elements.number(self.row))


@dataclass(frozen=True)
class Right:
    """Right operand. In a panel, the elements of term k begin at ``k * step``."""

    buffer: ir.Value
    step: AnySize


@dataclass(frozen=True)
class Lines:
    """Operand in memory, contiguous along k. ``at(row or column, k)``: position of an element."""

    buffer: ir.Value
    at: At


@dataclass(frozen=True)
class Packing:
    """Packer of operands to elements of type ``element``."""

    elements: Elements
    buffers: Buffers
    tiles: Tiles
    element: ir.Type

    def left(self, along_k: bool) -> Left:
        """Add memory for a block. ``along_k``: the operand is contiguous along k, and is packed so."""
        tiles, ld = self.tiles, self.tiles.block_k + LINE
        if along_k:
            return Left(self.buffers.add("private", tiles.block_m * ld, self.element), True, ld, ld, 1)
        buffer = self.buffers.add("private", tiles.block_m * tiles.block_k, self.element)
        return Left(buffer, False, tiles.block_k, tiles.terms, tiles.m)

    def pack_left(
        self, left: Left, at: At, rows: tuple[ir.Value, ir.Value], k: ir.Value, count: Count, uneven: bool
    ) -> None:
        """Pack ``rows`` (from, to), ``count`` terms from ``k`` on. ``uneven``: they may end within a tile."""
        e, number, m = self.elements, self.elements.number, self.tiles.m
        first, end = rows
        last = arith.subi(end, number(1))
        whole = number(m)
        padded = arith.muli(arith.ceildivui(arith.subi(end, first), whole), whole)
        if left.along_k:
            with bounded_loop(e, 0, padded) as i:
                row, start = arith.minui(arith.addi(first, i), last), arith.muli(i, number(left.row))
                with bounded_loop(e, 0, count) as kk:
                    e.store(at(row, arith.addi(k, kk)), left.buffer, arith.addi(start, kk))
            return
        with bounded_loop(e, 0, padded, m) as r:
            row, start = arith.addi(first, r), arith.muli(r, number(left.per_row))
            tile = partial(self._across, (left.buffer, start), (row, m), k, count)
            self._whole_or_clamped(tile, at, row, m, last, uneven)

    def pack_right(
        self, into: Into, at: At, first: ir.Value, sizes: tuple[int, int], along_k: bool, lines: Lines | None
    ) -> None:
        """Pack the panel of a tile's columns from ``first`` on, with k rows.

        ``sizes``: n and k of the right operand. ``lines``: its memory, if elements are only copied.
        """
        number, columns = self.elements.number, self.tiles.n
        n, k = sizes
        last = number(n - 1)
        if along_k:
            self._pack_transposed(into, at, first, last, k, lines)
            return
        panel = partial(self._across, into, (first, columns), number(0), k)
        self._whole_or_clamped(panel, at, first, columns, last, n % columns != 0)

    def _across(self, into: Into, rows: tuple[ir.Value, int], k: ir.Value, count: Count, at: At) -> None:
        """Pack ``count`` terms from ``k`` on of adjacent ``rows`` (first, number)."""
        e, number, terms = self.elements, self.elements.number, self.tiles.terms
        (buffer, base), (first, side) = into, rows
        with bounded_loop(e, 0, count, terms) as kk:
            to = arith.addi(base, arith.muli(kk, number(side)))
            with bounded_loop(e, 0, side) as i:
                here = arith.addi(to, arith.muli(i, number(terms)))
                for term in range(terms):
                    value = at(arith.addi(first, i), arith.addi(arith.addi(k, kk), number(term)))
                    e.store(value, buffer, arith.addi(here, number(term)))

    def _whole_or_clamped(
        self, write: Callable[[At], None], at: At, first: ir.Value, count: int, last: ir.Value, uneven: bool
    ) -> None:
        """Call ``write`` with ``at`` if ``count`` from ``first`` on exist, or else with ``last`` repeated."""
        if not uneven:
            write(at)
            return
        end = arith.addi(first, self.elements.number(count - 1))
        is_whole = arith.cmpi(arith.CmpIPredicate.ule, end, last)
        either(is_whole, lambda: write(at), lambda: write(lambda i, k: at(arith.minui(i, last), k)))

    def _pack_transposed(
        self, into: Into, at: At, first: ir.Value, last: ir.Value, k: int, lines: Lines | None
    ) -> None:
        """Pack squares, with as many columns as a vector has lanes: read along k, transposed in registers."""
        e, number, lanes, terms = self.elements, self.elements.number, self.tiles.lanes, self.tiles.terms
        (buffer, base), length = into, lanes * terms
        line = ir.VectorType.get([length], self.element)
        lane = ir.VectorType.get([lanes], ir.IntegerType.get_signless(width(self.element) * terms))
        stage: ir.Value | None = None

        def square(j0: ir.Value, k0: ir.Value, count: int) -> None:
            def column(j: ir.Value) -> ir.Value:
                return arith.minui(arith.addi(first, arith.addi(j0, j)), last)

            if lines is not None and count == length:
                places = (lines.at(column(number(j)), k0) for j in range(lanes))
                found = [vector.load(line, lines.buffer, [place]) for place in places]
            else:
                found = staged(column, k0, count)
            panel = arith.addi(base, arith.muli(j0, number(terms)))
            to = arith.addi(panel, arith.muli(k0, number(self.tiles.n)))
            turned = transposed([vector.bitcast(lane, each) for each in found])
            for kk, row in enumerate(turned[: count // terms]):
                packed = vector.bitcast(line, row)
                vector.store(packed, buffer, [arith.addi(to, number(kk * terms * self.tiles.n))])

        def staged(column: Callable[[ir.Value], ir.Value], k0: ir.Value, count: int) -> list[ir.Value]:
            nonlocal stage
            stage = stage or self.buffers.add("private", lanes * length, self.element)
            with bounded_loop(e, 0, lanes) as j:
                here, start = column(j), arith.muli(j, number(length))
                with bounded_loop(e, 0, count) as kk:
                    e.store(at(here, arith.addi(k0, kk)), stage, arith.addi(start, kk))
            return [vector.load(line, stage, [number(j * length)]) for j in range(lanes)]

        with bounded_loop(e, 0, self.tiles.n, lanes) as j0:
            with bounded_loop(e, 0, k - k % length, length) as k0:
                square(j0, k0, length)
            if k % length:
                square(j0, number(k - k % length), k % length)
