"""Writer of a convolution's register tiles to the result."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch_mlir import ir
from torch_mlir.dialects import arith, memref, vector

from shardc.backends.cpu.convolution.lines import Line
from shardc.backends.cpu.convolution.plan import Plan
from shardc.backends.cpu.emit.loops import bounded_loop, either, when
from shardc.backends.cpu.lanes.lanes import Lanes

Spot = tuple[ir.Value, ir.Value, ir.Value]
"""Position of a vector's first pixel along each dim."""
ULT = arith.CmpIPredicate.ult


def scratch_size(plan: Plan) -> int:
    """Return the elements of scratch memory: [residues, rows, vectors, lanes]."""
    return plan.residues[2] * plan.rows * plan.vectors * plan.lanes


class Store:
    """Writer of tiles to ``out``, with ``bias`` added.

    Vectors whose lanes are adjacent pixels of the result are stored. Those of several residues of the
    innermost dim are collected in ``scratch``, and interleaved when the last one is there.
    """

    def __init__(
        self, plan: Plan, lanes: Lanes, out: ir.Value, bias: ir.Value | None, scratch: ir.Value
    ) -> None:
        self.plan, self.lanes, self.out, self.bias, self.scratch = plan, lanes, out, bias, scratch

    def write(
        self,
        sums: Sequence[ir.Value],
        residue: tuple[int, int, int],
        spots: Sequence[Spot],
        image: tuple[ir.Value, ir.Value],
        row_tile: ir.Value,
    ) -> None:
        """Write a tile's sums. ``image``: the number of the image and of its group."""
        plan, lanes = self.plan, self.lanes
        number, last = lanes.index, lanes.index(plan.made - 1)
        pixels = prod(line.made for line in plan.lines)
        rows = [arith.minui(lanes.sum((row_tile, plan.rows), i), last) for i in range(plan.rows)]
        starts = [lanes.sum((image[0], plan.made * pixels), (row, pixels)) for row in rows]
        made = list(sums)
        if self.bias is not None:
            for i, row in enumerate(rows):
                scalar = memref.load(self.bias, [lanes.sum((image[1], plan.made), row)])
                added = vector.broadcast(lanes.type, scalar)
                for j in range(plan.vectors):
                    made[i * plan.vectors + j] = arith.addf(made[i * plan.vectors + j], added)
        if plan.residues[2] == 1 and plan.is_whole:
            for j, spot in enumerate(spots):
                inside, line = self._line(spot, residue)

                def store(j: int = j, line: ir.Value = line, column: ir.Value = spot[2]) -> None:
                    for i, start in enumerate(starts):
                        lanes.store(made[i * plan.vectors + j], self.out, lanes.sum(start, line, column))

                if inside is None:
                    store()
                else:
                    with when(inside):
                        store()
            return
        for n, value in enumerate(made):
            at = residue[2] * plan.rows * plan.vectors + n
            lanes.store(value, self.scratch, number(at * plan.lanes))
        if residue[2] == plan.residues[2] - 1:
            for j, spot in enumerate(spots):
                inside, line = self._line(spot, residue)
                if inside is None:
                    self._rows(j, line, spot[2], starts)
                else:
                    with when(inside):
                        self._rows(j, line, spot[2], starts)

    def _line(self, spot: Spot, residue: tuple[int, int, int]) -> tuple[ir.Value | None, ir.Value]:
        """Return whether a vector's row of pixels is in the result, None if it always is, and its offset."""
        plan, lanes = self.plan, self.lanes
        inside: ir.Value | None = None
        places: list[ir.Value] = []
        for line, at, r in zip(plan.lines[:2], spot[:2], residue[:2], strict=True):
            place = lanes.sum((at, len(line.residues)), r)
            places.append(place)
            if not _is_inside(line, r):
                found = arith.cmpi(ULT, place, lanes.index(line.made))
                inside = found if inside is None else arith.andi(inside, found)
        _, y, x = plan.lines
        return inside, lanes.sum((places[0], y.made * x.made), (places[1], x.made))

    def _rows(self, j: int, line: ir.Value, column: ir.Value, starts: Sequence[ir.Value]) -> None:
        """Interleave vector ``j`` of all rows, from the scratch memory."""
        plan, lanes = self.plan, self.lanes
        residues, x = plan.residues[2], plan.lines[2]
        for i, start in enumerate(starts):
            n = i * plan.vectors + j
            to = lanes.sum(start, line, (column, residues))
            if residues == 2 and plan.is_whole:
                self._pairs(n, to, column)
            else:
                self._elements(n, to, column, x)

    def _pairs(self, n: int, to: ir.Value, column: ir.Value) -> None:
        """Interleave two vectors of adjacent residues. The last element may be beyond the row."""
        plan, lanes, x = self.plan, self.lanes, self.plan.lines[2]
        width = plan.lanes
        a, b = (self._kept(residue, n) for residue in range(2))
        both = [number for pair in zip(range(width), range(width, 2 * width), strict=True) for number in pair]
        lanes.store(_shuffled(lanes, a, b, both[:width]), self.out, to)

        def whole() -> None:
            lanes.store(_shuffled(lanes, a, b, both[width:]), self.out, lanes.sum(to, width))

        def short() -> None:
            lanes.store(_shuffled(lanes, a, b, both[width - 1 : -1]), self.out, lanes.sum(to, width - 1))

        if x.made % 2 == 0:
            whole()
        else:
            either(arith.cmpi(ULT, column, lanes.index(x.count - width)), whole, short)

    def _elements(self, n: int, to: ir.Value, column: ir.Value, x: Line) -> None:
        """Store the elements of vectors one by one, as far as the row goes."""
        plan, lanes = self.plan, self.lanes
        residues, apart = plan.residues[2], plan.rows * plan.vectors * plan.lanes
        left = arith.subi(lanes.index(x.made), lanes.sum((column, residues)))
        many = arith.minui(left, lanes.index(residues * plan.lanes))
        with bounded_loop(lanes.elements, 0, many) as at:
            lane, residue = arith.divui(at, lanes.index(residues)), arith.remui(at, lanes.index(residues))
            value = memref.load(self.scratch, [lanes.sum(n * plan.lanes, (residue, apart), lane)])
            memref.store(value, self.out, [arith.addi(to, at)])

    def _kept(self, residue: int, n: int) -> ir.Value:
        plan, lanes = self.plan, self.lanes
        at = residue * plan.rows * plan.vectors + n
        return lanes.load(self.scratch, lanes.index(at * plan.lanes))


def _is_inside(line: Line, residue: int) -> bool:
    return len(line.residues) * (line.count - 1) + residue < line.made


def _shuffled(lanes: Lanes, a: ir.Value, b: ir.Value, order: Sequence[int]) -> ir.Value:
    return vector.shuffle(a, b, order)
