"""Rows and elements at indices in a tensor: embeddings, ``index_select``, ``gather``, tensor indexing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import AnySize
from shardc.passes.fuse.lower.scalars import Scalar, Scalars
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value

Read = Callable[[Scalar], Scalar]


def outside(s: Scalars, index: Scalar, first: int, size: AnySize) -> Scalar:
    """Whether an i64 is not in ``range(first, size)``."""
    return s.bit("or", s.compare("lt", index, first), s.compare("ge", index, s.size(size, torch.int64)))


def picked(s: Scalars, read: Read, index: Scalar, size: AnySize) -> Scalar:
    """The element of a dim of ``size`` at ``index``; the first one where there is no such element."""
    index = s.cast(index, torch.int64)
    return read(s.select(outside(s, index, 0, size), 0, index))


def _gathered(
    b: Builder,
    call: OpCall,
    index: Value,
    table: Value,
    dims: Sequence[int | None],
    message: str,
    negative: bool = False,
) -> list[Value]:
    """``table``, whose dims are the result's ``dims``, at ``index`` along the dim that is None there.

    ``negative``: indices may count from the end. ``message``: what is wrong with the index ``{}``.
    """
    (type_,) = results(call)
    size = table.type.shape[list(dims).index(None)]
    if negative and not isinstance(size, int):
        raise NotLowered("counts from the end of a dim of symbolic size")

    def checked(s: Scalars, at: Scalar) -> Scalar:
        return outside(s, s.cast(at, torch.int64), -size if negative else 0, size)

    def compute(s: Scalars, at: Scalar, read: Read) -> Scalar:
        at = s.cast(at, torch.int64)
        if negative:
            at = s.select(s.compare("lt", at, 0), s.add(at, size), at)
        return s.cast(picked(s, read, at, size), s.compute)

    b.check(index, checked, message, sizes=[size])
    return [b.point(compute, [index], type_, sizes=[size], tables=[(table, dims)])]


@lowers("aten.embedding")
def embedding(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """A row for each index."""
    table, index = values
    seen = b.seen(index, (*index.type.shape, 1))
    return _gathered(b, call, seen, table, (None, len(index.type.shape)), "index out of range in self")


@lowers("aten.index_select")
def index_select(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    table, index = values
    rank = len(table.type.shape)
    if not rank:
        raise NotLowered("is of a number")
    dim = call["dim"] % rank
    seen = b.seen(index, (*index.type.shape, *[1] * (rank - dim - 1)) if index.type.shape else ())
    dims = [None if d == dim else d for d in range(rank)]
    return _gathered(b, call, seen, table, dims, "index out of range in self")


@lowers("aten.gather")
def gather(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """An element for each index, at its own place in the other dims."""
    table, index = values
    (type_,), shape = results(call), table.type.shape
    dim = call["dim"] % max(1, len(shape))
    if not shape or any(n != m for d, (n, m) in enumerate(zip(shape, type_.shape, strict=True)) if d != dim):
        raise NotLowered("is of a part of the other dims")
    dims = [None if d == dim else d for d in range(len(shape))]
    message = f"index {{}} is out of bounds for dimension {dim} with size {shape[dim]}"
    return _gathered(b, call, index, table, dims, message)


@lowers("aten.index.Tensor")
def index(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Indexing by one tensor of integers."""
    given = [dim for dim, i in enumerate(call["indices"]) if isinstance(i, TensorType)]
    if len(given) != 1 or values[1].type.dtype not in (torch.int64, torch.int32):
        raise NotLowered("is indexing by several tensors, or by truth values")
    table, index = values
    (dim,), count, rank = given, len(index.type.shape), len(table.type.shape)
    seen = b.seen(index, (*index.type.shape, *[1] * (rank - dim - 1)))
    dims = [None if d == dim else d if d < dim else d - 1 + count for d in range(rank)]
    message = f"index {{}} is out of bounds for dimension {dim} with size {table.type.shape[dim]}"
    return _gathered(b, call, seen, table, dims, message, negative=True)
