"""Lowerings of concatenations, stacks, constant padding, and the gradients of slices and selections.

Equal parts form a dim ``parts x size``, in which each element selects its part by the first index. Parts of
different sizes along a short dim are parts of one index each. Others are read at computed indices, all parts
for each element. That pays if at least :data:`MIN_RUN` elements share the index, or for rows of
:data:`MIN_ROW` elements; else ATen copies them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate
from math import prod

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import hint
from shardc.passes.fuse.grouping.legal import MIN_RUN
from shardc.passes.fuse.lower.gather import Read, outside, picked
from shardc.passes.fuse.lower.moves import static
from shardc.passes.fuse.lower.scalars import Scalar, Scalars
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Cut, Value, View

MAX_PARTS = 32
"""Limit of parts of a concatenation, since each element tests all of them."""
MIN_ROW = 64
"""Least elements of a row along which parts of different sizes follow each other. CPU loops are cut between
parts (:mod:`shardc.backends.cpu.lanes.sections`)."""
SHORT = 8
"""Most elements of a row whose parts of different sizes are divided into single elements: rows of 5 and 3
took 0.32 of TorchInductor's time instead of 0.87, rows of 7 and 5 1.18 instead of 1.10. With several elements
for each index, 16 took 0.67 instead of 1.24."""
MAX_PLACED = 3
"""Limit of parts of different sizes, since each element reads all of them."""


def _chosen(
    b: Builder, parts: Sequence[Value], type_: TensorType, dim: int, choose: Callable[..., Scalar]
) -> Value:
    """Return ``choose(scalars, index, *parts)`` for each index along ``dim``, where parts have size 1."""

    def compute(s: Scalars, *terms: Scalar) -> Scalar:
        *given, index = terms
        return choose(s, s.cast(index, torch.int32), *(s.cast(x, s.compute) for x in given))

    return b.point(compute, parts, type_, indices=[[dim]])


def _select_one(position: int) -> Callable[..., Scalar]:
    """Return a function that selects the single part at ``position``, and zeros elsewhere."""
    return lambda s, index, x: s.select(s.compare("eq", index, position), x, 0)


@lowers("aten.cat")
def cat(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (type_,) = results(call)
    values = [v for v in values if 0 not in v.type.shape]
    rank, shape = len(type_.shape), values[0].type.shape
    dim = call["dim"] % rank
    if len(values) == 1:
        return [b.point(lambda s, x: s.cast(x, s.compute), values, type_)]
    if any(v.type.shape != shape for v in values):
        if _is_short(type_, dim) and all(isinstance(v.type.shape[dim], int) for v in values):
            return [_side_by_side(b, [one for v in values for one in _singles(v, dim)], type_, dim)]
        starts = list(accumulate((v.type.shape[dim] for v in values), initial=0))
        return [_placed(b, values, starts, type_, dim)]
    split = type_.with_shape((*shape[:dim], len(values), *shape[dim:]))
    return [b.reshape(_side_by_side(b, values, split, dim), type_.shape)]


def _is_short(type_: TensorType, dim: int) -> bool:
    """Return whether a dim has few indices, each with few elements."""
    size, inner = type_.shape[dim], prod(map(hint, type_.shape[dim + 1 :]))
    return isinstance(size, int) and size <= (SHORT if inner == 1 else MIN_RUN) and inner < MIN_RUN


def _singles(x: Value, dim: int) -> list[Value]:
    """Return slices of one index of ``dim`` each."""
    size = x.type.shape[dim]
    assert isinstance(size, int)
    type_ = x.type.with_shape((*x.type.shape[:dim], 1, *x.type.shape[dim + 1 :]))
    cuts = (Cut(dim, 1, at, 1, False) for at in range(size))
    return [x] if size == 1 else [Value(type_, None, View(x, cut=cut), x.node) for cut in cuts]


@lowers("aten.stack")
def stack(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (type_,) = results(call)
    return [_side_by_side(b, values, type_, call["dim"] % len(type_.shape))]


def _side_by_side(b: Builder, parts: Sequence[Value], type_: TensorType, dim: int) -> Value:
    """Return ``parts`` of one shape along a new dim."""
    if len(parts) > MAX_PARTS:
        raise NotLowered(f"concatenates more than {MAX_PARTS} parts")
    one = (*type_.shape[:dim], 1, *type_.shape[dim + 1 :])

    def choose(s: Scalars, index: Scalar, *given: Scalar) -> Scalar:
        chosen = given[-1]
        for number in reversed(range(len(given) - 1)):
            chosen = s.select(s.compare("eq", index, number), given[number], chosen)
        return chosen

    return _chosen(b, [b.seen(part, one) for part in parts], type_, dim, choose)


def _placed(
    b: Builder, parts: Sequence[Value], starts: Sequence[int], type_: TensorType, dim: int, rest: float = 0
) -> Value:
    """Return ``parts`` placed at ``starts`` along ``dim``, with ``rest`` elsewhere."""
    if len(parts) > MAX_PLACED:
        raise NotLowered(f"concatenates more than {MAX_PLACED} parts of different sizes")
    static(type_)
    inner = prod(n for n in type_.shape[dim + 1 :] if isinstance(n, int))
    if inner < MIN_RUN and (inner > 1 or hint(type_.shape[dim]) < MIN_ROW):
        raise NotLowered(
            f"concatenates parts of different sizes, with less than {MIN_RUN} elements for each index"
        )
    dims = [None if d == dim else d for d in range(len(type_.shape))]

    def compute(s: Scalars, *terms: Read | Scalar) -> Scalar:
        *reads, index = terms
        chosen = s.constant(rest, s.compute)
        assert isinstance(index, Scalar)
        for part, start, read in zip(parts, starts, reads, strict=False):
            assert not isinstance(read, Scalar)
            at, size = s.sub(index, start), part.type.shape[dim]
            chosen = s.select(outside(s, at, 0, size), chosen, s.cast(picked(s, read, at, size), s.compute))
        return chosen

    return b.point(compute, [], type_, indices=[[dim]], tables=[(part, dims) for part in parts])


@lowers("aten.slice_backward")
def slice_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (grad,), (type_,) = values, results(call)
    dim = call["dim"] % len(type_.shape)
    whole, part = type_.shape[dim], grad.type.shape[dim]
    before, after = type_.shape[:dim], type_.shape[dim + 1 :]
    if part == whole:
        return [b.point(lambda s, x: x, [grad], type_)]
    first, _, step = slice(call["start"], call["end"], call["step"]).indices(whole)
    if step == 1 and whole % part == 0 and first % part == 0:
        shape, seen = (*before, whole // part, part, *after), (*before, 1, part, *after)
        index_dim, at = dim, first // part
    elif step > 1 and whole == part * step:
        shape, seen = (*before, part, step, *after), (*before, part, 1, *after)
        index_dim, at = dim + 1, first
    elif step == 1:
        inner = prod(n for n in after if isinstance(n, int))
        if inner < MIN_RUN:
            return [_surrounded(b, grad, type_, {dim: first}, 0)]
        return [_placed(b, [grad], [first], type_, dim)]
    else:
        return [_spread(b, grad, type_, dim, first, step)]
    split = _chosen(b, [b.seen(grad, seen)], type_.with_shape(shape), index_dim, _select_one(at))
    return [b.reshape(split, type_.shape)]


@lowers("aten.constant_pad_nd")
def pad(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower constant padding; negative padding shortens a dim."""
    (x,), (type_,) = values, results(call)
    rank, ends = len(type_.shape), list(zip(call["pad"][::2], call["pad"][1::2], strict=True))
    padded = [(rank - 1 - d, before) for d, (before, after) in enumerate(ends) if before or after]
    if not isinstance(call["value"], int | float | bool):
        raise NotLowered("does not pad with a real number")
    if not padded:
        return [b.point(lambda s, v: s.cast(v, s.compute), [x], type_)]
    if len(padded) > 1 or padded[0][0] == rank - 1:
        return [_surrounded(b, x, type_, dict(padded), call["value"])]
    ((dim, before),) = padded
    return [_placed(b, [x], [before], type_, dim, call["value"])]


def _surrounded(b: Builder, x: Value, type_: TensorType, before: dict[int, int], rest: float) -> Value:
    """Return ``x`` surrounded by the value ``rest``. ``before``: start of ``x`` in each padded dim."""
    static(x.type, type_)
    dims = sorted(before)
    kept = [None if d in before else d for d in range(len(type_.shape))]

    def compute(s: Scalars, read: Read, *places: Scalar) -> Scalar:
        ats = [s.sub(place, before[d]) for d, place in zip(dims, places, strict=True)]
        beyond = [outside(s, at, 0, x.type.shape[d]) for d, at in zip(dims, ats, strict=True)]
        is_out = reduce(lambda a, c: s.bit("or", a, c), beyond)
        inner = [s.select(out, 0, at) for out, at in zip(beyond, ats, strict=True)]
        return s.select(is_out, rest, s.cast(read(*inner), s.compute))

    return b.point(compute, [], type_, indices=[[d] for d in dims], tables=[(x, kept)])


def _spread(b: Builder, x: Value, type_: TensorType, dim: int, first: int, step: int) -> Value:
    """Return ``x`` at each index ``first + step * i`` of ``dim``, with zeros elsewhere."""
    static(x.type, type_)
    kept = [None if d == dim else d for d in range(len(type_.shape))]

    def compute(s: Scalars, read: Read, place: Scalar) -> Scalar:
        gap = s.sub(place, first)
        at = s.op("arith.divsi", s.pair(gap, step), torch.int64)
        between = s.compare("ne", s.mul(at, step), gap)  # a negative index is out of bounds
        beyond = s.bit("or", between, outside(s, at, 0, x.type.shape[dim]))
        return s.select(beyond, 0, s.cast(read(s.select(beyond, 0, at)), s.compute))

    return b.point(compute, [], type_, indices=[[dim]], tables=[(x, kept)])


@lowers("aten.select_backward")
def select_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (grad,), (type_,) = values, results(call)
    dim = call["dim"] % len(type_.shape)
    seen = b.seen(grad, (*type_.shape[:dim], 1, *type_.shape[dim + 1 :]))
    return [_chosen(b, [seen], type_, dim, _select_one(call["index"] % type_.shape[dim]))]
