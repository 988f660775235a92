"""Copies of tiles of an argument that is read across the rows, so that they are contiguous along a row."""

from __future__ import annotations

from collections.abc import Mapping

from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from shardc.backends.body.graph import Argument
from shardc.backends.body.linear import Axis, Index, Linear, row_major
from shardc.backends.cpu.emit.buffers import Buffers, width, width_bytes
from shardc.backends.cpu.emit.element import Elements, Kept, Place
from shardc.backends.cpu.emit.loops import bounded_loop, either
from shardc.backends.cpu.host import vector_bytes
from shardc.backends.cpu.lanes.lanes import transposed

Range = tuple[Axis, ir.Value, ir.Value]
"""Axis with a range of positions (start, end)."""


class Turn:
    """Copy of the tile of ``value`` at ``index`` in ``rows`` and ``columns``, at the other axes ``outer``.

    ``tile``: most rows and columns of a tile.
    """

    def __init__(
        self,
        elements: Elements,
        buffers: Buffers,
        value: Argument,
        index: Index,
        outer: Mapping[Axis, ir.Value],
        tile: int,
    ) -> None:
        self._elements, self._value, self._index, self._outer = elements, value, index, outer
        self._tile = tile
        self._buffer = buffers.add("private", tile * tile, value.element)

    def emit(self, rows: Range, columns: Range) -> None:
        """Write the copy, in squares that are transposed in registers, and read the copy from here on."""
        elements, number = self._elements, self._elements.number
        (row, top, bottom), (column, left, right) = rows, columns
        offset = Linear.axis(row) * self._tile + Linear.axis(column)
        start = elements.position(offset, Place({row: top, column: left}))
        kept = Kept(self._buffer, offset, start)
        elements.kept.pop((self._value, self._index), None)
        lanes = vector_bytes() // width_bytes(self._value.element)
        if width(self._value.element) < 32 or lanes > self._tile:
            self._copy(kept, rows, columns)
        else:
            with (
                bounded_loop(elements, left, right, lanes) as q,
                bounded_loop(elements, top, bottom, lanes) as p,
            ):
                ends = [arith.addi(at, number(lanes)) for at in (p, q)]
                inside = [
                    arith.cmpi(arith.CmpIPredicate.ule, end, most)
                    for end, most in zip(ends, (bottom, right), strict=True)
                ]
                limits = [arith.minui(end, most) for end, most in zip(ends, (bottom, right), strict=True)]
                either(
                    arith.andi(*inside),
                    lambda: self._square(kept, (row, p), (column, q), lanes),
                    lambda: self._copy(kept, (row, p, limits[0]), (column, q, limits[1])),
                )
        elements.kept[self._value, self._index] = kept

    def _copy(self, kept: Kept, rows: Range, columns: Range) -> None:
        """Copy single elements."""
        elements, (row, top, bottom), (column, left, right) = self._elements, rows, columns
        with bounded_loop(elements, left, right) as q, bounded_loop(elements, top, bottom) as p:
            place = Place({**self._outer, row: p, column: q})
            at = arith.subi(elements.position(kept.offset, place), kept.start)
            elements.store(elements.element(self._value, self._index, place), kept.buffer, at)

    def _square(
        self, kept: Kept, row: tuple[Axis, ir.Value], column: tuple[Axis, ir.Value], lanes: int
    ) -> None:
        """Copy as many rows and columns as a vector has lanes."""
        elements, number = self._elements, self._elements.number
        type_ = ir.VectorType.get([lanes], self._value.element)
        place = Place({**self._outer, **dict((row, column))})
        source = row_major(self._index, self._value.shape)
        first, by = elements.position(source, place), number(source.factor(column[0]))
        memory = elements.buffers[self._value]
        places = [arith.addi(first, arith.muli(by, number(n))) for n in range(lanes)]
        turned = transposed([vector.load(type_, memory, [at]) for at in places])
        to = arith.subi(elements.position(kept.offset, place), kept.start)
        for n, line in enumerate(turned):
            vector.store(line, kept.buffer, [arith.addi(to, number(n * self._tile))])
