"""Transposing copies between tensors (queries in rows) and buffers (queries in lanes)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from shardc.backends.cpu.emit.element import Count
from shardc.backends.cpu.emit.loops import bounded_loop
from shardc.backends.cpu.lanes.lanes import Lanes, Matrix, transposed

Read = Callable[[ir.Value, ir.Value, bool], ir.Value]
"""Function (buffer, position, True for a vector) -> the f32 element there, or a vector."""
Finish = Callable[[ir.Value, ir.Value], ir.Value]
"""Function (lanes of a column, number of the first row in them) -> lanes to store."""


@dataclass(frozen=True)
class Turning:
    """Transposition between ``rows`` x ``columns`` of a matrix and a buffer with ``queries`` lanes a row."""

    lanes: Lanes
    rows: ir.Value
    columns: Count
    queries: int

    def into_lanes(self, source: Matrix, into: Matrix, finish: Finish, read: Read | None = None) -> None:
        """Set ``into[column, row] = finish(source[row, column], first lane)``. The last row is repeated."""
        lanes, width, read = self.lanes, self.lanes.width, read or self._read
        last = lanes.sum(self.rows, -1)
        with bounded_loop(lanes.elements, 0, self.queries, width) as start:
            row = [arith.minui(lanes.sum(start, i), last) for i in range(width)]
            with bounded_loop(lanes.elements, 0, self._whole(source), width) as column:
                found = [read(source.buffer, source.at(lanes, r, column), True) for r in row]
                for i, value in enumerate(transposed(found)):
                    finished = finish(value, start)
                    lanes.store(finished, into.buffer, into.at(lanes, lanes.sum(column, i), start))
            with bounded_loop(lanes.elements, self._whole(source), self.columns) as column:
                value = lanes.splat(0.0)
                for i, r in enumerate(row):
                    element = read(source.buffer, source.at(lanes, r, column), False)
                    value = vector.insert(element, value, [], [i])
                lanes.store(finish(value, start), into.buffer, into.at(lanes, column, start))

    def _read(self, buffer: ir.Value, position: ir.Value, wide: bool) -> ir.Value:
        return self.lanes.load(buffer, position) if wide else self.lanes.scalar(buffer, position)

    def from_lanes(self, source: Matrix, into: Matrix) -> None:
        """Set ``into[row, column] = source[column, row]``, rounded to the type of ``into``."""
        lanes, width = self.lanes, self.lanes.width
        whole = lanes.index(0) if into.column_stride != 1 else self._multiple(self.rows)
        rows = bounded_loop(lanes.elements, 0, whole, width)
        columns = bounded_loop(lanes.elements, 0, self._whole(into), width)
        with rows as start, columns as column:
            places = (source.at(lanes, lanes.sum(column, i), start) for i in range(width))
            found = [lanes.load(source.buffer, place) for place in places]
            for i, value in enumerate(transposed(found)):
                lanes.store(value, into.buffer, into.at(lanes, lanes.sum(start, i), column))
        self._each(source, into, lanes.index(0), whole, self._whole(into))
        self._each(source, into, whole, self.rows, lanes.index(0))

    def _each(self, source: Matrix, into: Matrix, low: ir.Value, high: ir.Value, first: ir.Value) -> None:
        lanes = self.lanes
        columns = bounded_loop(lanes.elements, first, self.columns)
        with bounded_loop(lanes.elements, low, high) as r, columns as c:
            lanes.put(lanes.scalar(source.buffer, source.at(lanes, c, r)), into.buffer, into.at(lanes, r, c))

    def _whole(self, tensor: Matrix) -> ir.Value:
        """Return the number of columns that are read as whole vectors."""
        return self._multiple(self.columns) if tensor.column_stride == 1 else self.lanes.index(0)

    def _multiple(self, count: Count) -> ir.Value:
        """Return ``count`` rounded down to whole vectors."""
        index, width = self.lanes.index, self.lanes.width
        if isinstance(count, int):
            return index(count // width * width)
        return arith.muli(arith.divui(index(count), index(width)), index(width))
