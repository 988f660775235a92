"""Operands of a matmul in the order in which register tiles read them; what is computed from a tensor (a
cast, a scale) is computed once, on the way.

Rows and columns beyond the matmul's repeat its last one: tiles are always whole, and what the surplus gives
is not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith, scf, vector

from shardc.backends.cpu.emit.buffers import Buffers
from shardc.backends.cpu.emit.element import Elements
from shardc.backends.cpu.emit.loops import bounded_loop
from shardc.backends.cpu.matmul.tiles import Tiles

At = Callable[[ir.Value, ir.Value], ir.Value]
"""An element of the operand: ``at(row or column, k)``."""

LINE = 16
"""Elements by which rows of the left operand are set apart, so that they do not fall into one set of the
cache.
"""


@dataclass(frozen=True)
class Left:
    """A block of the left operand: element (i, k) of the tile that begins at row r is at
    ``r * per_row + i * row + k * step``, k a multiple of the tiles' ``terms``. ``along_k``: contiguous along
    k. ``uneven``: tiles may reach beyond its last row, and read that one again.
    """

    buffer: ir.Value
    along_k: bool
    per_row: int
    row: int
    step: int
    uneven: bool = False

    def offset(self, elements: Elements, i: int, last: ir.Value) -> ir.Value:
        """Of row ``i`` from the tile's first one; ``last`` is the number of the last row that there is from
        there.
        """
        if not self.uneven:
            return elements.number(i * self.row)
        return arith.muli(arith.minui(elements.number(i), last), elements.number(self.row))


@dataclass(frozen=True)
class Right:
    """A right operand: of a panel, the elements of term k begin ``k * step`` after its first."""

    buffer: ir.Value
    step: int


@dataclass(frozen=True)
class Lines:
    """An operand that is memory, contiguous along k: ``at(row or column, k)`` is where an element is."""

    buffer: ir.Value
    at: At


@dataclass(frozen=True)
class Packing:
    """Writes packed operands of elements of type ``element``."""

    elements: Elements
    buffers: Buffers
    tiles: Tiles
    element: ir.Type

    def left(self, along_k: bool) -> Left:
        """Memory for a block; ``along_k``: the operand is contiguous along k, and stays so."""
        tiles, ld = self.tiles, self.tiles.block_k + LINE
        if along_k:
            return Left(self.buffers.add("private", tiles.block_m * ld, self.element), True, ld, ld, 1)
        count = tiles.block_m * tiles.block_k
        return Left(
            self.buffers.add("private", count, self.element), False, tiles.block_k, tiles.terms, tiles.m
        )

    def pack_left(
        self,
        left: Left,
        at: At,
        rows: tuple[ir.Value, ir.Value],
        k: ir.Value,
        count: ir.Value | int,
        uneven: bool,
    ) -> None:
        """``rows`` (from, to) from term ``k`` on, ``count`` terms. ``uneven``: they may be no multiple of a
        tile's.
        """
        e, number, m = self.elements, self.elements.number, self.tiles.m
        first, end = rows
        last = arith.subi(end, number(1))
        whole = number(m)
        padded = arith.muli(arith.ceildivui(arith.subi(end, first), whole), whole)
        if left.along_k:
            with bounded_loop(e, 0, padded) as (i, _):
                row, start = arith.minui(arith.addi(first, i), last), arith.muli(i, number(left.row))
                with bounded_loop(e, 0, count) as (kk, _):
                    e.store(at(row, arith.addi(k, kk)), left.buffer, arith.addi(start, kk))
            return
        with bounded_loop(e, 0, padded, m) as (r, _):
            row, start = arith.addi(first, r), arith.muli(r, number(left.per_row))

            def tile(get: At) -> None:
                self._across(get, left.buffer, start, (row, m), k, count)

            self._whole_or_clamped(tile, at, row, m, last, uneven)

    def pack_right(
        self,
        buffer: ir.Value,
        base: ir.Value,
        at: At,
        first: ir.Value,
        sizes: tuple[int, int],
        along_k: bool,
        lines: Lines | None,
    ) -> None:
        """The panel of a tile's columns from ``first`` on, of a right operand of ``sizes`` n and k: k rows.
        ``lines``: where it lies, if nothing is computed on the way."""
        number, width = self.elements.number, self.tiles.n
        n, k = sizes
        last = number(n - 1)
        if along_k:
            self._pack_transposed(buffer, base, at, first, last, k, lines)
            return

        def panel(get: At) -> None:
            self._across(get, buffer, base, (first, width), number(0), k)

        self._whole_or_clamped(panel, at, first, width, last, n % width != 0)

    def _across(
        self,
        at: At,
        buffer: ir.Value,
        base: ir.Value,
        rows: tuple[ir.Value, int],
        k: ir.Value,
        count: ir.Value | int,
    ) -> None:
        """``count`` terms from ``k`` on of ``rows`` (the first, and how many), which lie side by side."""
        e, number, terms = self.elements, self.elements.number, self.tiles.terms
        first, width = rows
        with bounded_loop(e, 0, count, terms) as (kk, _):
            to = arith.addi(base, arith.muli(kk, number(width)))
            with bounded_loop(e, 0, width) as (i, _):
                here = arith.addi(to, arith.muli(i, number(terms)))
                for term in range(terms):
                    value = at(arith.addi(first, i), arith.addi(arith.addi(k, kk), number(term)))
                    e.store(value, buffer, arith.addi(here, number(term)))

    def _whole_or_clamped(
        self, write: Callable[[At], None], at: At, first: ir.Value, count: int, last: ir.Value, uneven: bool
    ) -> None:
        """``write`` with ``at`` where ``count`` from ``first`` on are there, else with what repeats the
        ``last``.
        """
        if not uneven:
            write(at)
            return
        end = arith.addi(first, self.elements.number(count - 1))
        branch = scf.IfOp(arith.cmpi(arith.CmpIPredicate.ule, end, last), has_else=True)
        with ir.InsertionPoint(branch.then_block):
            write(at)
            scf.YieldOp([])
        with ir.InsertionPoint(branch.else_block):
            write(lambda i, k: at(arith.minui(i, last), k))
            scf.YieldOp([])

    def _pack_transposed(
        self,
        buffer: ir.Value,
        base: ir.Value,
        at: At,
        first: ir.Value,
        last: ir.Value,
        k: int,
        lines: Lines | None,
    ) -> None:
        """Squares of as many columns as a vector has lanes are read along k, and turned in registers."""
        e, number, lanes, terms = self.elements, self.elements.number, self.tiles.lanes, self.tiles.terms
        length = lanes * terms
        line = ir.VectorType.get([length], self.element)
        lane = ir.VectorType.get([lanes], ir.IntegerType.get_signless(self.element.width * terms))
        stage: ir.Value | None = None

        def square(j0: ir.Value, k0: ir.Value, count: int) -> None:
            def column(j: ir.Value) -> ir.Value:
                return arith.minui(arith.addi(first, arith.addi(j0, j)), last)

            if lines is not None and count == length:
                found = [
                    vector.load(line, lines.buffer, [lines.at(column(number(j)), k0)]) for j in range(lanes)
                ]
            else:
                found = staged(column, k0, count)
            to = arith.addi(
                arith.addi(base, arith.muli(j0, number(terms))), arith.muli(k0, number(self.tiles.n))
            )
            turned = _transposed([vector.bitcast(lane, each) for each in found])
            for kk, row in enumerate(turned[: count // terms]):
                vector.store(
                    vector.bitcast(line, row), buffer, [arith.addi(to, number(kk * terms * self.tiles.n))]
                )

        def staged(column: Callable[[ir.Value], ir.Value], k0: ir.Value, count: int) -> list[ir.Value]:
            nonlocal stage
            stage = stage or self.buffers.add("private", lanes * length, self.element)
            with bounded_loop(e, 0, lanes) as (j, _):
                here, start = column(j), arith.muli(j, number(length))
                with bounded_loop(e, 0, count) as (kk, _):
                    e.store(at(here, arith.addi(k0, kk)), stage, arith.addi(start, kk))
            return [vector.load(line, stage, [number(j * length)]) for j in range(lanes)]

        with bounded_loop(e, 0, self.tiles.n, lanes) as (j0, _):
            with bounded_loop(e, 0, k - k % length, length) as (k0, _):
                square(j0, k0, length)
            if k % length:
                square(j0, number(k - k % length), k % length)


def _transposed(rows: list[ir.Value]) -> list[ir.Value]:
    """A square of vectors turned: in each of log2 steps, blocks of half the size change places."""
    lanes = len(rows)
    half = lanes // 2
    while half:
        low = [lane if not lane & half else lanes + lane - half for lane in range(lanes)]
        high = [lane + half if not lane & half else lanes + lane for lane in range(lanes)]
        turned = list(rows)
        for i in range(lanes):
            if not i & half:
                turned[i] = vector.shuffle(rows[i], rows[i + half], low)
                turned[i + half] = vector.shuffle(rows[i], rows[i + half], high)
        rows, half = turned, half // 2
    return rows
