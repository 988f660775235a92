"""Cumulative sums and similar scans: each device scans its block and adds the total of earlier blocks.

That total is a scan over the blocks' totals, one number for each row and device.
"""

from __future__ import annotations

from functools import partial
from math import inf

from torch_mlir import ir

from shardc.passes.propagate.split.writer import Number, SplitWriter


def cumsum(
    w: SplitWriter, x: ir.Value, dim: int, dtype: object, *, backwards: bool = False
) -> tuple[ir.Value]:
    return (_scan(w, x, dim, "aten.cumsum", "aten.add.Tensor", 0, backwards),)


def cumprod(
    w: SplitWriter, x: ir.Value, dim: int, dtype: object, *, backwards: bool = False
) -> tuple[ir.Value]:
    return (_scan(w, x, dim, "aten.cumprod", "aten.mul.Tensor", 1, backwards),)


def logcumsumexp(w: SplitWriter, x: ir.Value, dim: int, *, backwards: bool = False) -> tuple[ir.Value]:
    return (_scan(w, x, dim, "aten.logcumsumexp", "aten.logaddexp", -inf, backwards),)


def _scan(
    w: SplitWriter, x: ir.Value, dim: int, scan: str, combine: str, neutral: Number, backwards: bool
) -> ir.Value:
    """``scan`` along ``dim``, from its end if ``backwards``."""
    dim = w.dim(x, dim)
    run = partial(_run, w, scan, backwards)
    inside = run(w.blocks(x, dim), dim + 1)
    last = 0 if backwards else w.shape(inside)[dim + 1] - 1
    totals = run(w.call("aten.slice.Tensor", inside, dim + 1, last, last + 1), dim)
    before = _shifted(w, totals, dim, neutral, backwards)
    return w.joined(w.call(combine, inside, before), dim)


def _shifted(w: SplitWriter, totals: ir.Value, dim: int, neutral: Number, backwards: bool) -> ir.Value:
    """Shift ``totals`` by one block, so that a block's own total is excluded from its prefix.

    The result is concatenated, not padded: each device has all totals, and a pad would be split and send some
    again.
    """
    first = 1 if backwards else 0
    kept = w.call("aten.slice.Tensor", totals, dim, first, first + w.shape(totals)[dim] - 1)
    edge = w.call("aten.full_like", w.call("aten.slice.Tensor", totals, dim, 0, 1), neutral)
    return w.call("aten.cat", (kept, edge) if backwards else (edge, kept), dim)


def _run(w: SplitWriter, scan: str, backwards: bool, x: ir.Value, dim: int) -> ir.Value:
    if not backwards:
        return w.call(scan, x, dim)
    return w.call("aten.flip", w.call(scan, w.call("aten.flip", x, (dim,)), dim), (dim,))
