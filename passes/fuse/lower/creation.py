"""Tensors made from numbers: filled with one, counting up, and triangles of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardc.dialects.aten.call import OpCall
from shardc.dialects.kern.size import Size
from shardc.passes.fuse.lower.scalars import Scalar, Scalars
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.graph import Builder, NotLowered, Value


def _filled(b: Builder, call: OpCall, number: Any) -> list[Value]:
    (type_,) = results(call)
    if isinstance(number, complex):
        raise NotLowered("is filled with a complex number")
    sizes = [number] if isinstance(number, Size) else []
    return [b.point(lambda s: s.size(number, type_.dtype), [], type_, sizes=sizes)]


@lowers("aten.zeros", "aten.zeros_like", "aten.new_zeros")
def zeros(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    return _filled(b, call, 0)


@lowers("aten.ones", "aten.ones_like", "aten.new_ones")
def ones(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    return _filled(b, call, 1)


@lowers("aten.full", "aten.full_like", "aten.new_full")
def full(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    return _filled(b, call, call["fill_value"])


@lowers("aten.scalar_tensor")
def scalar_tensor(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    return _filled(b, call, call["s"])


@lowers("aten.arange", "aten.arange.start", "aten.arange.start_step")
def arange(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Of integers: those of floats are rounded in ways that differ between ATen's loops."""
    (type_,) = results(call)
    start = 0 if call.target == "aten.arange" else call["start"]
    step = call["step"] if call.target == "aten.arange.start_step" else 1
    if type_.dtype.is_floating_point or not isinstance(start, int) or not isinstance(step, int):
        raise NotLowered("counts in floats")

    def compute(s: Scalars, index: Scalar) -> Scalar:
        return s.add(s.mul(s.cast(index, type_.dtype), step), start)

    return [b.point(compute, [], type_, indices=[[0]])]


def _triangle(b: Builder, call: OpCall, values: Sequence[Value], predicate: str) -> list[Value]:
    (type_,), diagonal = results(call), call["diagonal"]
    if not isinstance(diagonal, int):
        raise NotLowered("has a diagonal that differs from call to call")
    rank = len(type_.shape)

    def compute(s: Scalars, x: Scalar, row: Scalar, column: Scalar) -> Scalar:
        return s.select(s.compare(predicate, column, s.add(row, diagonal)), s.cast(x, s.compute), 0)

    return [b.point(compute, values, type_, indices=[[rank - 2], [rank - 1]])]


@lowers("aten.tril")
def tril(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    return _triangle(b, call, values, "le")


@lowers("aten.triu")
def triu(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    return _triangle(b, call, values, "ge")
