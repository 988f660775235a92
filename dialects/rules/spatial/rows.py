"""Rows that ranks read where blocks of the result are not the blocks of the operand.

A dim of ``b s`` elements becomes one of ``b t``: for example, blocks of 8 rows become blocks of 9, which may
begin and end in other ranks' blocks. Every rank receives the largest halo that any rank needs, and selects
its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from shardc.dialects.rules.rule import Local
from shardc.dialects.rules.spatial.neighbours import Halo

Source = Callable[[int], int]
"""Maps a row of the padded whole (negative before its start) to the row that is repeated there."""


@dataclass(frozen=True)
class Rows:
    """Rows along ``dim`` that each rank reads: ``made`` rows from row ``i * step - before`` of the whole.

    i is the rank's index over ``factor``, which is split ``ways`` ways; each rank holds ``given`` rows.
    """

    factor: str
    dim: int
    ways: int
    given: int
    made: int
    step: int
    before: int

    @property
    def total(self) -> int:
        return self.ways * self.given

    def _reads(self, place: int) -> range:
        first = place * self.step - self.before
        return range(first, first + self.made)

    def halo(self, source: Source | None = None) -> Halo:
        """Return the halo: rows that ranks read outside their own blocks, without rows outside the whole."""
        before = after = 0
        for place in range(self.ways):
            rows = [source(row) if source else row for row in self._reads(place)]
            inside = [row for row in rows if 0 <= row < self.total]
            if inside:
                before = max(before, place * self.given - min(inside))
                after = max(after, max(inside) + 1 - (place + 1) * self.given)
        return Halo(self.factor, self.dim, self.given, before, after)

    def _halo(self, kind: str) -> Halo:
        """Return the halo for a kind of padding; circular padding also reads beyond the edges of the
        whole.
        """
        if kind != "circular":
            return self.halo(self._source(kind))
        reads = [(self._reads(place), place * self.given) for place in range(self.ways)]
        before = max(0, *(first - rows[0] for rows, first in reads))
        after = max(0, *(rows[-1] + 1 - first - self.given for rows, first in reads))
        return Halo(self.factor, self.dim, self.given, before, after, ring=True)

    def moved(self, local: Local, x: Any, outside: float) -> Any:
        """Return this rank's rows; rows outside the whole hold ``outside``."""
        halo = self.halo()
        x = halo.extended(local, x, outside)
        first = [place * (self.step - self.given) - self.before + halo.before for place in range(self.ways)]
        low = max(0, -min(first))
        high = max(0, max(first) + self.made - halo.before - self.given - halo.after)
        if low or high:
            x = local.emit("aten.constant_pad_nd", x, self._pads(local, low, high), outside)
        start = local.offset(self.factor, (self.step - self.given) // local.size(self.factor), first[0] + low)
        return local.emit("aten.narrow_copy", x, self.dim, start, self.made)

    def _pads(self, local: Local, low: int, high: int) -> tuple[int, ...]:
        behind = len(local.spec.tensors[0].shape) - 1 - self.dim
        return (*(0, 0) * behind, low, high)

    def repeated(self, local: Local, x: Any, kind: str) -> Any:
        """Return this rank's rows with padding of ``kind``: "reflection", "replication" or "circular"."""
        halo = self._halo(kind)
        x = halo.extended(local, x)
        return local.emit("aten.index_select", x, self.dim, self._numbers(local, kind, halo))

    def added(self, local: Local, grad: Any, kind: str) -> Any:
        """Return the gradient of :meth:`repeated`: each row is added to the row that it repeats."""
        halo = self._halo(kind)
        size, numbers = halo.before + halo.size + halo.after, self._numbers(local, kind, halo)
        zeros = local.emit("aten.constant_pad_nd", grad, self._pads(local, -self.made, size), 0)
        return halo.returned(local, local.emit("aten.index_add", zeros, self.dim, numbers, grad, 1))

    def _source(self, kind: str) -> Source:
        last = self.total - 1
        if kind == "replication":
            return lambda row: min(max(row, 0), last)
        return lambda row: last - abs(last - abs(row))

    def _numbers(self, local: Local, kind: str, halo: Halo) -> Any:
        """Return the rows' indices in the extended block: :meth:`_source`, built from operators."""
        size, last = local.size(self.factor), self.total - 1
        row = local.emit("aten.arange", self.made, torch.int64)
        first = local.offset(self.factor, self.step // size, -self.before)
        row = local.emit("aten.add.Scalar", row, first, 1)
        if kind == "replication":
            row = local.emit("aten.clamp", row, 0, last)
        elif kind == "reflection":
            row = local.emit("aten.abs", row)
            row = local.emit("aten.abs", local.emit("aten.rsub.Scalar", row, last, 1))
            row = local.emit("aten.rsub.Scalar", row, last, 1)
        own = local.offset(self.factor, -(self.given // size), halo.before)
        return local.emit("aten.add.Scalar", row, own, 1)
