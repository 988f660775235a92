"""The ops that parts take: what stores them interleaved, what puts them back, and moves of them. All are ATen
calls.
"""

from __future__ import annotations

import itertools
from typing import Any

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import replace_leaves
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.dist.interleaving import Parts
from shardc.passes.interleave.moves import SLICE, Move
from shardc.passes.partition.local_call import infer_types, with_defaults


class PartsWriter:
    """Builds calls before ``op``, or ``behind`` it, with its location and phase."""

    def __init__(self, builder: CallBuilder, op: ir.Operation, behind: bool = False) -> None:
        self._builder, self._location = builder, op.location
        self._phase = {n: op.attributes[n] for n in ("dist.phase",) if n in op.attributes}
        self._after = op if behind else None
        self._ip = ir.InsertionPoint(op)

    def call(self, target: str, *args: Any) -> ir.Value:
        full = with_defaults(target, args)
        types = infer_types(
            target, replace_leaves(full, lambda a: _type(a) if isinstance(a, ir.Value) else a)
        )
        ip = self._ip if self._after is None else ir.InsertionPoint.after(self._after)
        made = self._builder.call(target, full, types, self._location, ip, self._phase)
        self._after = None if self._after is None else made
        return made.results[0]

    def interleaved(self, value: ir.Value, dim: int, parts: Parts) -> ir.Value:
        """A tensor whose dim is as it should be, as it is stored."""
        ends = (0, *itertools.accumulate(parts.sizes))
        pieces = [self.call(SLICE, value, dim, a, b, 1) for a, b in itertools.pairwise(ends)]
        return self._joined([self._split(p, dim, parts.ways) for p in pieces], dim)

    def restored(self, value: ir.Value, dim: int, parts: Parts) -> ir.Value:
        """The other way round."""
        ends = (0, *itertools.accumulate(parts.sizes))
        moved = [self._taken(value, dim, parts.ways, r) for r in itertools.pairwise(ends)]
        return self.call("aten.cat", moved, dim)

    def moved(self, move: Move, whole: Parts, operands: list[ir.Value], args: tuple[Any, ...]) -> ir.Value:
        """What the call ``move`` makes, whose large tensor is stored as ``whole``."""
        dim, ways = move.dim, whole.ways
        if move.takes:
            return self._taken(operands[0], dim, ways, move.ranges[0])
        if len(operands) > 1 or move.ranges == ((0, whole.size),):
            return self._joined([self._split(v, dim, ways) for v in operands], dim)
        (start, end), after = move.ranges[0], len(_type(operands[0]).shape) - 1 - dim
        pads = (*(0, 0) * after, start // ways, (whole.size - end) // ways)
        padded = self.call("aten.constant_pad_nd", self._split(operands[0], dim, ways), pads, args[-1])
        return self._merged(padded, dim)

    def _taken(self, value: ir.Value, dim: int, ways: int, elements: tuple[int, int]) -> ir.Value:
        start, end = elements
        return self._merged(
            self.call(SLICE, self._split(value, dim, ways), dim + 1, start // ways, end // ways, 1), dim
        )

    def _joined(self, pieces: list[ir.Value], dim: int) -> ir.Value:
        return self._merged(self.call("aten.cat", pieces, dim + 1), dim)

    def _split(self, value: ir.Value, dim: int, ways: int) -> ir.Value:
        shape = _type(value).shape
        return self.call("aten.reshape", value, (*shape[:dim], ways, shape[dim] // ways, *shape[dim + 1 :]))

    def _merged(self, value: ir.Value, dim: int) -> ir.Value:
        shape = _type(value).shape
        return self.call(
            "aten.reshape", value, (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :])
        )


def _type(value: ir.Value) -> TensorType:
    found = read_type(value.type)
    assert found is not None
    return found
