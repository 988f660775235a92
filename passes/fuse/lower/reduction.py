"""Sums, means, extrema and variances over dims. Sums of floats are taken in f32 at least."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.schema import parameters
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import AnySize
from shardc.passes.fuse.lower.scalars import wide
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value


def _reduced_dims(call: OpCall) -> list[int]:
    """The dims that go. No ``dim`` argument, None, or an empty list: all of them."""
    rank = len(call.tensors[0].shape)
    dim = call["dim"] if any(name == "dim" for name, _, _ in parameters(call.target)) else None
    if dim is None or dim == ():
        return list(range(rank))
    return sorted({d % rank for d in (dim if isinstance(dim, tuple) else (dim,))}) if rank else []


def converted(b: Builder, x: Value, dtype: torch.dtype) -> Value:
    """``x`` in ``dtype``."""
    if x.type.dtype == dtype:
        return x
    return b.point(lambda s, v: s.cast(v, dtype), [x], TensorType(x.type.shape, dtype), dtype=dtype)


def finished(b: Builder, x: Value, type_: TensorType) -> Value:
    """The result of a reduction in the shape and dtype that the call's result has."""
    made = converted(b, x, type_.dtype)
    return b.reshape(made, type_.shape) if x.type.shape != type_.shape else made


@lowers("aten.sum", "aten.sum.dim_IntList")
def total(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (type_,) = results(call)
    x = converted(b, values[0], wide(type_.dtype)) if type_.dtype != values[0].type.dtype else values[0]
    return [finished(b, b.reduce("sum", x, _reduced_dims(call), wide(type_.dtype)), type_)]


@lowers("aten.mean", "aten.mean.dim")
def mean(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (type_,) = results(call)
    return [finished(b, mean_over(b, values[0], _reduced_dims(call), wide(type_.dtype)), type_)]


def mean_over(b: Builder, x: Value, dims: Sequence[int], dtype: torch.dtype) -> Value:
    return divided(b, b.reduce("sum", x, dims, dtype), prod(x.type.shape[d] for d in dims))


def divided(b: Builder, x: Value, count: AnySize) -> Value:
    return b.point(lambda s, v: s.div(v, s.size(count, v.dtype)), [x], x.type, sizes=[count])


@lowers("aten.amax", "aten.amin")
def extremum(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """NaN if there is any."""
    if values[0].type.dtype == torch.bool:
        raise NotLowered("is an extremum of booleans")
    kind = "max" if call.target == "aten.amax" else "min"
    return [finished(b, b.reduce(kind, values[0], _reduced_dims(call)), results(call)[0])]


@lowers("aten.var.correction", "aten.var_mean.correction")
def variance(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Two sums: of x, and of the squared distance to its mean."""
    dims, types = _reduced_dims(call), results(call)
    correction = 1 if call["correction"] is None else call["correction"]
    freedom = prod(values[0].type.shape[d] for d in dims) - correction
    if isinstance(freedom, int) and freedom <= 0:
        raise NotLowered("has no degree of freedom")
    mean, square = moments(b, values[0], dims, wide(types[0].dtype))

    def compute(s, v):
        return s.div(v, s.maximum(s.size(freedom, v.dtype), 0.0))

    var = b.point(compute, [square], square.type, sizes=[freedom])
    return [finished(b, value, type_) for value, type_ in zip((var, mean), types, strict=False)]


def moments(b: Builder, x: Value, dims: Sequence[int], dtype: torch.dtype) -> tuple[Value, Value]:
    """The mean over ``dims`` (which stay with size 1), and the sum of squared distances to it."""
    mean = mean_over(b, x, dims, dtype)

    def squared(s, v, m):
        gap = s.sub(s.cast(v, dtype), m)
        return s.mul(gap, gap)

    distance = b.point(squared, [x, mean], TensorType(x.type.shape, dtype), dtype=dtype)
    return mean, b.reduce("sum", distance, dims, dtype)
