"""Layer norm and RMS norm with their gradients, as sums over rows and over columns."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import AnySize
from shardc.passes.fuse.lower.reduction import converted, finished, moments
from shardc.passes.fuse.lower.scalars import Scalar, Scalars, wide
from shardc.passes.fuse.lower.table import given, lowers
from shardc.passes.fuse.reading.builder import Builder
from shardc.passes.fuse.reading.graph import Value


def inverse_deviation(b: Builder, square: Value, count: AnySize, eps: float) -> Value:
    """``rsqrt(square / count + eps)`` of sums of squared distances to a mean."""

    def compute(s: Scalars, v: Scalar) -> Scalar:
        return s.math("rsqrt", s.add(s.div(v, s.size(count, v.dtype)), eps))

    return b.point(compute, [square], square.type, heavy=True, sizes=[count])


def affine(
    b: Builder, x: Value, mean: Value, rstd: Value, type_: TensorType, weights: Sequence[Value | None] = ()
) -> Value:
    """``(x - mean) * rstd``, with ``weights`` times the weight and plus the bias where there is one."""
    dtype, (weight, bias) = wide(type_.dtype), weights or (None, None)

    def compute(s: Scalars, v: Scalar, m: Scalar, r: Scalar, *rest: Scalar) -> Scalar:
        terms = iter(s.cast(t, dtype) for t in rest)
        y = s.mul(s.sub(s.cast(v, dtype), s.cast(m, dtype)), s.cast(r, dtype))
        y = s.mul(y, next(terms)) if weight is not None else y
        return s.add(y, next(terms)) if bias is not None else y

    present = [w for w in weights if w is not None]
    return b.point(compute, [x, mean, rstd, *present], type_, dtype=dtype)


def input_gradient(
    b: Builder, g: Value, h: Value, rstd: Value, dims: Sequence[int], type_: TensorType
) -> Value:
    """``rstd * (g - mean(g) - h * mean(g * h))`` over ``dims``, with the normalized input ``h``."""
    dtype, count = g.type.dtype, prod(g.type.shape[d] for d in dims)
    product = b.point(lambda s, v, n: s.mul(v, n), [g, h], g.type)
    sums = b.reduce("sum", g, dims), b.reduce("sum", product, dims)

    def compute(s: Scalars, v: Scalar, n: Scalar, r: Scalar, first: Scalar, second: Scalar) -> Scalar:
        share = s.div(s.add(first, s.mul(n, second)), s.size(count, dtype))
        return s.mul(s.sub(v, share), s.cast(r, dtype))

    return b.point(compute, [g, h, rstd, *sums], type_, dtype=dtype, sizes=[count])


def _rows(call: OpCall, x: Value) -> tuple[list[int], list[int]]:
    """The dims that count rows, and those that a row has."""
    rank, inner = len(x.type.shape), len(call["normalized_shape"])
    return list(range(rank - inner)), list(range(rank - inner, rank))


@lowers("aten.native_layer_norm")
def layer_norm(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    x, weight, bias = given(call, values)
    out, mean_type, rstd_type = call.results
    assert x is not None and out is not None and mean_type is not None and rstd_type is not None
    _, dims = _rows(call, x)
    mean, square = moments(b, x, dims, wide(out.dtype))
    rstd = inverse_deviation(b, square, prod(x.type.shape[d] for d in dims), call["eps"])
    y = affine(b, x, mean, rstd, out, (weight, bias))
    return [y, finished(b, mean, mean_type), finished(b, rstd, rstd_type)]


@lowers("aten.native_layer_norm_backward")
def layer_norm_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    """With the normalized input h and g = grad * weight: dx = rstd * (g - mean(g) - h * mean(g * h)).

    h is computed in each of the two kernels, as it is cheaper to compute than to write and read.
    """
    grad, x, mean, rstd, weight, _ = given(call, values)
    assert grad is not None and x is not None and mean is not None and rstd is not None
    dtype, (outer, dims) = wide(grad.type.dtype), _rows(call, x)
    whole = TensorType(x.type.shape, dtype)
    made: list[Value | None] = [None, None, None]

    def scaled(s: Scalars, v: Scalar, *w: Scalar) -> Scalar:
        return s.mul(s.cast(v, dtype), s.cast(w[0], dtype)) if w else s.cast(v, dtype)

    if call.results[0] is not None:
        h = affine(b, x, mean, rstd, whole)
        g = b.point(scaled, [grad] if weight is None else [grad, weight], whole, dtype=dtype)
        made[0] = input_gradient(b, g, h, rstd, dims, call.results[0])
    if call.results[1] is not None:
        h = affine(b, x, mean, rstd, whole)
        product = b.point(lambda s, v, n: s.mul(s.cast(v, dtype), n), [grad, h], whole, dtype=dtype)
        made[1] = finished(b, b.reduce("sum", product, outer), call.results[1])
    if call.results[2] is not None:
        made[2] = finished(b, b.reduce("sum", converted(b, grad, dtype), outer), call.results[2])
    return made
