"""Lowering of scatters of one element per row: the gradients of ``max``, ``min``, ``median`` along a dim."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shardc.dialects.aten.call import OpCall
from shardc.passes.fuse.lower.gather import out_of_bounds, outside
from shardc.passes.fuse.lower.moves import static
from shardc.passes.fuse.lower.scalars import Scalar, Scalars
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value


@lowers("aten.scatter.src")
def scatter(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower a scatter with one index per row along ``dim``, in which no two elements have the same place.

    The result is ``src`` where the position along ``dim`` is the row's index, and ``self`` elsewhere.
    """
    x, index, source = values
    (type_,) = results(call)
    static(x.type, *(v.type for v in values))
    rank = len(x.type.shape)
    if not rank:
        raise NotLowered("works on a number, not a tensor")
    dim = call["dim"] % rank
    rows = tuple(1 if d == dim else n for d, n in enumerate(x.type.shape))
    if index.type.shape != rows or source.type.shape != rows:
        raise NotLowered("writes several elements of a row, or skips rows")
    size = x.type.shape[dim]
    assert isinstance(size, int)

    def compute(s: Scalars, old: Scalar, at: Scalar, new: Scalar, place: Scalar) -> Scalar:
        here = s.compare("eq", s.cast(at, torch.int64), place)
        return s.select(here, s.cast(new, s.compute), s.cast(old, s.compute))

    b.check(
        index,
        lambda s, at: outside(s, s.cast(at, torch.int64), 0, size),
        out_of_bounds(x, dim),
        sizes=[],
    )
    return [b.point(compute, [x, index, source], type_, indices=[[dim]])]
