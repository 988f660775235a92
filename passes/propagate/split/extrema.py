"""Extrema with indices: the extremum of a row, then the first index that holds it.

Both are reductions, so devices send two numbers a row. PyTorch's CPU operators return the first index, too,
and treat the first NaN as the extremum.
"""

from __future__ import annotations

import torch
from torch_mlir import ir

from shardc.passes.partition.local_call import type_of
from shardc.passes.propagate.split.writer import SplitWriter


def max_dim(w: SplitWriter, x: ir.Value, dim: int, keepdim: bool) -> tuple[ir.Value, ir.Value]:
    """``(values, indices)``."""
    dim = w.dim(x, dim)
    return _with_place(w, x, w.largest(x, dim), dim, keepdim)


def min_dim(w: SplitWriter, x: ir.Value, dim: int, keepdim: bool) -> tuple[ir.Value, ir.Value]:
    """``(values, indices)``."""
    dim = w.dim(x, dim)
    return _with_place(w, x, w.least(x, dim), dim, keepdim)


def argmax(w: SplitWriter, x: ir.Value, dim: int, keepdim: bool) -> tuple[ir.Value]:
    return (max_dim(w, x, dim, keepdim)[1],)


def argmin(w: SplitWriter, x: ir.Value, dim: int, keepdim: bool) -> tuple[ir.Value]:
    return (min_dim(w, x, dim, keepdim)[1],)


def _with_place(
    w: SplitWriter, x: ir.Value, best: ir.Value, dim: int, keepdim: bool
) -> tuple[ir.Value, ir.Value]:
    shape = w.shape(x)
    here = w.call("aten.eq.Tensor", x, best)
    if type_of(x).dtype.is_floating_point:
        here = w.call("aten.logical_or", here, w.call("aten.ne.Tensor", x, x))
    places = w.positions(shape[dim], dim, len(shape))
    place = w.cast(w.least(w.call("aten.where.ScalarOther", here, places, shape[dim]), dim), torch.int64)
    return (best, place) if keepdim else (w.without(best, dim), w.without(place, dim))
