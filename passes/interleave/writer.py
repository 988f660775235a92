"""Writer of the ATen calls that interleave the parts of a dim, restore their order, and move them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod

from torch_mlir import ir

from shardc.dialects.dist.interleaving import Parts
from shardc.passes.interleave.moves import PartsMove
from shardc.passes.interleave.rows import Rows
from shardc.passes.partition.local_call import CallWriter, type_of


class PartsWriter(CallWriter):
    """Builder of calls on tensors whose dims are stored as parts."""

    def interleaved(self, value: ir.Value, dim: int, parts: Parts) -> ir.Value:
        """Return a tensor with its dim ``dim`` changed from the usual order to interleaved parts."""
        if parts.folded:
            return self._folded(value, dim, parts)
        ends = (0, *itertools.accumulate(parts.sizes))
        pieces = [self.call("aten.slice.Tensor", value, dim, a, b, 1) for a, b in itertools.pairwise(ends)]
        return self._joined([self._split(p, dim, parts.ways) for p in pieces], dim)

    def restored(self, value: ir.Value, dim: int, parts: Parts) -> ir.Value:
        """Return a tensor with its dim ``dim`` changed from interleaved parts to the usual order."""
        if parts.folded:
            return self._in_order(value, dim, parts)
        ends = (0, *itertools.accumulate(parts.sizes))
        moved = [self._taken(value, dim, parts.ways, r) for r in itertools.pairwise(ends)]
        return self.call("aten.cat", moved, dim)

    def _folded(self, value: ir.Value, dim: int, parts: Parts) -> ir.Value:
        """Reorder blocks of b sequences from [b, 2 w, c] to [w, b, 2, c]."""
        shape, batch, ways = type_of(value).shape, len(parts.sizes), parts.ways
        before, after = shape[:dim], (shape[dim] // (2 * batch * ways), *shape[dim + 1 :])
        blocks = self.call("aten.reshape", value, (*before, batch, 2, ways, *after))
        halves = [self.call("aten.select.int", blocks, dim + 1, n) for n in (0, 1)]
        halves[1] = self.call("aten.flip", halves[1], (dim + 1,))
        turned = [self.call("aten.transpose.int", half, dim, dim + 1) for half in halves]
        apart = [self.call("aten.unsqueeze", half, dim + 2) for half in turned]
        return self.call("aten.reshape", self.call("aten.cat", apart, dim + 2), shape)

    def _in_order(self, value: ir.Value, dim: int, parts: Parts) -> ir.Value:
        """Reorder blocks of b sequences from [w, b, 2, c] to [b, 2 w, c]."""
        shape, batch, ways = type_of(value).shape, len(parts.sizes), parts.ways
        before, after = shape[:dim], (shape[dim] // (2 * batch * ways), *shape[dim + 1 :])
        blocks = self.call("aten.reshape", value, (*before, ways, batch, 2, *after))
        halves = [self.call("aten.select.int", blocks, dim + 2, n) for n in (0, 1)]
        halves[1] = self.call("aten.flip", halves[1], (dim,))
        turned = [self.call("aten.transpose.int", half, dim, dim + 1) for half in halves]
        return self.call("aten.reshape", self.call("aten.cat", turned, dim + 1), shape)

    def moved(
        self, move: PartsMove, whole: Parts, operands: list[ir.Value], args: tuple[object, ...]
    ) -> ir.Value:
        """Return the result of the call ``move``, whose large tensor is stored as ``whole``."""
        dim, ways = move.dim, whole.ways
        if move.takes:
            return self._taken(operands[0], dim, ways, move.ranges[0])
        if len(operands) > 1 or move.ranges == ((0, whole.size),):
            return self._joined([self._split(v, dim, ways) for v in operands], dim)
        (start, end), after = move.ranges[0], len(type_of(operands[0]).shape) - 1 - dim
        pads = (*(0, 0) * after, start // ways, (whole.size - end) // ways)
        padded = self.call("aten.constant_pad_nd", self._split(operands[0], dim, ways), pads, args[-1])
        return self._merged(padded, dim)

    def reshaped(self, value: ir.Value, shape: tuple[int, ...], moves: Sequence[Rows]) -> ir.Value:
        """Return a value reshaped to ``shape``; each of ``moves`` moves blocks of its sharded dim."""
        for rows in reversed(moves):
            move, (count, size), ways = rows.move, rows.blocks, rows.ways
            have, at = type_of(value).shape, move.at
            rest = have[at + (1 if move.takes else len(move.shape)) :]
            lead = (ways, count) if move.takes else (count, ways)
            value = self.call("aten.reshape", value, (*have[:at], *lead, size, *rest))
            value = self.call("aten.transpose.int", value, at, at + 1)
            made = move.shape if move.takes else (prod(move.shape),)
            value = self.call("aten.reshape", value, (*have[:at], *made, *rest))
        return value if type_of(value).shape == shape else self.call("aten.reshape", value, shape)

    def _taken(self, value: ir.Value, dim: int, ways: int, elements: tuple[int, int]) -> ir.Value:
        start, end = (n // ways for n in elements)
        apart = self._split(value, dim, ways)
        return self._merged(self.call("aten.slice.Tensor", apart, dim + 1, start, end, 1), dim)

    def _joined(self, pieces: list[ir.Value], dim: int) -> ir.Value:
        return self._merged(self.call("aten.cat", pieces, dim + 1), dim)

    def _split(self, value: ir.Value, dim: int, ways: int) -> ir.Value:
        shape = type_of(value).shape
        return self.call("aten.reshape", value, (*shape[:dim], ways, shape[dim] // ways, *shape[dim + 1 :]))

    def _merged(self, value: ir.Value, dim: int) -> ir.Value:
        before, (a, b, *after) = type_of(value).shape[:dim], type_of(value).shape[dim:]
        return self.call("aten.reshape", value, (*before, a * b, *after))
