"""Lowerings of reads at indices: embeddings, ``index_select``, ``gather``, and indexing by tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import AnySize, Size
from shardc.passes.fuse.lower.scalars import Scalar, Scalars
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value

Read = Callable[..., Scalar]
"""Function that reads an element of a table; it takes an i64 index for each indexed dim."""


def outside(s: Scalars, index: Scalar, first: int, size: AnySize) -> Scalar:
    """Return whether an i64 index is outside ``range(first, size)``."""
    return s.bit("or", s.compare("lt", index, first), s.compare("ge", index, s.size(size, torch.int64)))


def picked(s: Scalars, read: Read, index: Scalar, size: AnySize) -> Scalar:
    """Return the element of a dim of ``size`` at ``index``, or the first one if the index is out of range."""
    index = s.cast(index, torch.int64)
    return read(s.select(outside(s, index, 0, size), 0, index))


def _gathered(
    b: Builder,
    call: OpCall,
    index: Value,
    table: Value,
    dim: int,
    message: str,
    negative: bool = False,
) -> list[Value]:
    """Return ``table`` at ``index`` along ``dim``; the dims of ``index`` replace ``dim`` in the result.

    ``negative``: True if indices may count from the end. ``message``: error message for an index out of
    range, which replaces ``{}``.
    """
    (type_,) = results(call)
    size, rank = table.type.shape[dim], len(table.type.shape)
    more = len(type_.shape) - rank
    dims = [None if d == dim else d if d < dim else d + more for d in range(rank)]
    if negative and not isinstance(size, int):
        raise NotLowered("may count indices from the end of a dim of symbolic size")

    def checked(s: Scalars, at: Scalar) -> Scalar:
        return outside(s, s.cast(at, torch.int64), -size if negative else 0, size)

    def compute(s: Scalars, at: Scalar, read: Read) -> Scalar:
        at = s.cast(at, torch.int64)
        if negative:
            at = s.select(s.compare("lt", at, 0), s.add(at, size), at)
        return s.cast(picked(s, read, at, size), s.compute)

    b.check(index, checked, message, sizes=[size])
    return [b.point(compute, [index], type_, sizes=[size], tables=[(table, dims)])]


def _rows(
    b: Builder, call: OpCall, values: Sequence[Value], dim: int, message: str, negative: bool = False
) -> list[Value]:
    """Return the slice of the table at each index, with all other dims of the table."""
    table, index = values
    seen = b.seen(index, (*index.type.shape, *[1] * (len(table.type.shape) - dim - 1)))
    return _gathered(b, call, seen, table, dim, message, negative)


@lowers("aten.embedding")
def embedding(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower embeddings: a row of the table for each index."""
    return _rows(b, call, values, 0, "index out of range in self")


@lowers("aten.index_select")
def index_select(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    rank = len(values[0].type.shape)
    if not rank:
        raise NotLowered("reads a number, not a tensor")
    return _rows(b, call, values, call["dim"] % rank, "index out of range in self")


@lowers("aten.gather")
def gather(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower ``gather``: an element for each index, at the index's own position in the other dims."""
    table, index = values
    (type_,), shape = results(call), table.type.shape
    dim = call["dim"] % max(1, len(shape))
    if not shape or any(n != m for d, (n, m) in enumerate(zip(shape, type_.shape, strict=True)) if d != dim):
        raise NotLowered("covers only a part of the other dims")
    return _gathered(b, call, index, table, dim, out_of_bounds(table, dim))


@lowers("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower indexing by one or several tensors of integers; several are broadcast together."""
    given = [dim for dim, i in enumerate(call["indices"]) if isinstance(i, TensorType)]
    if not given or any(v.type.dtype not in (torch.int64, torch.int32) for v in values[1:]):
        raise NotLowered("indexes by booleans")
    if len(given) > 1 or call.target == "aten._unsafe_index.Tensor":
        return [_at_several(b, call, values, given)]
    (dim,) = given
    return _rows(b, call, values, dim, out_of_bounds(values[0], dim), negative=True)


def _at_several(b: Builder, call: OpCall, values: Sequence[Value], given: list[int]) -> Value:
    """Return ``table`` at several indices, which are broadcast to common dims.

    If the indexed dims are neighbours, the common dims take the place of the first. Otherwise, they come
    first in the result.
    """
    table, *indices = values
    (type_,), shape = results(call), table.type.shape
    if any(isinstance(n, Size) for v in values for n in v.type.shape):
        raise NotLowered("may count indices from the end of a dim of symbolic size")
    common = torch.broadcast_shapes(*(v.type.shape for v in indices))
    neighbours = given == list(range(given[0], given[-1] + 1))
    start = given[0] if neighbours else 0
    others = [d for d in range(len(shape)) if d not in given]
    place = {d: at if at < start else at + len(common) for at, d in enumerate(others)}
    behind = len(type_.shape) - start - len(common)
    seen = [b.seen(v, (*v.type.shape, *[1] * behind)) for v in indices]

    def checked(size: int) -> Callable[[Scalars, Scalar], Scalar]:
        return lambda s, at: outside(s, s.cast(at, torch.int64), -size, size)

    def compute(s: Scalars, *terms: Scalar | Read) -> Scalar:
        *ats, read = terms
        assert not isinstance(read, Scalar)
        found = []
        for dim, at in zip(given, ats, strict=True):
            assert isinstance(at, Scalar)
            at, size = s.cast(at, torch.int64), shape[dim]
            at = s.select(s.compare("lt", at, 0), s.add(at, size), at)
            found.append(s.maximum(s.minimum(at, size - 1), 0))
        return s.cast(read(*found), s.compute)

    if call.target == "aten.index.Tensor":
        for dim, v in zip(given, indices, strict=True):
            b.check(v, checked(shape[dim]), out_of_bounds(table, dim), sizes=[])
    return b.point(compute, seen, type_, tables=[(table, [place.get(d) for d in range(len(shape))])])


@lowers("shardc.flat_index")
def flat_index(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower the indices of several dims as one of their product."""
    (type_,), sizes = results(call), tuple(call["sizes"])

    def checked(size: int) -> Callable[[Scalars, Scalar], Scalar]:
        return lambda s, at: outside(s, s.cast(at, torch.int64), -size, size)

    def compute(s: Scalars, *indices: Scalar) -> Scalar:
        flat = s.constant(0, torch.int64)
        for index, size in zip(indices, sizes, strict=True):
            at = s.cast(index, torch.int64)
            at = s.select(s.compare("lt", at, 0), s.add(at, size), at)
            flat = s.add(s.mul(flat, size), at)
        return flat

    for number, (value, size) in enumerate(zip(values, sizes, strict=True)):
        b.check(value, checked(size), _beyond(call["first"] + number, size), sizes=[])
    return [b.point(compute, values, type_)]


def out_of_bounds(table: Value, dim: int) -> str:
    return _beyond(dim, table.type.shape[dim])


def _beyond(dim: int, size: AnySize) -> str:
    return f"index {{}} is out of bounds for dimension {dim} with size {size}"
