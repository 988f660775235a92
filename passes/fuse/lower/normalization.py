"""Lowerings of layer norm and its gradients, and parts that other norms share."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import AnySize
from shardc.passes.fuse.lower.reduction import converted, finished, moments
from shardc.passes.fuse.lower.scalars import Scalar, Scalars, wide
from shardc.passes.fuse.lower.table import given, lowers, results
from shardc.passes.fuse.reading.builder import Builder
from shardc.passes.fuse.reading.graph import Value


def inverse_deviation(b: Builder, square: Value, count: AnySize, eps: float) -> Value:
    """Return ``rsqrt(square / count + eps)``. ``square``: sums of squared distances to the mean."""

    def compute(s: Scalars, v: Scalar) -> Scalar:
        return s.math("rsqrt", s.add(s.div(v, s.size(count, v.dtype)), eps))

    return b.point(compute, [square], square.type, heavy=True, sizes=[count])


def affine(
    b: Builder, x: Value, mean: Value, rstd: Value, type_: TensorType, weights: Sequence[Value | None] = ()
) -> Value:
    """Return ``(x - mean) * rstd``, times the weight and plus the bias if ``weights`` has them."""
    dtype, (weight, bias) = wide(type_.dtype), weights or (None, None)

    def compute(s: Scalars, v: Scalar, m: Scalar, r: Scalar, *rest: Scalar) -> Scalar:
        terms = iter(s.cast(t, dtype) for t in rest)
        y = s.mul(s.sub(s.cast(v, dtype), s.cast(m, dtype)), s.cast(r, dtype))
        y = s.mul(y, next(terms)) if weight is not None else y
        return s.add(y, next(terms)) if bias is not None else y

    present = [w for w in weights if w is not None]
    return b.point(compute, [x, mean, rstd, *present], type_, dtype=dtype)


def input_gradient(
    b: Builder, g: Value, h: Value, scale: Value, sums: Sequence[Value], count: AnySize, type_: TensorType
) -> Value:
    """Return ``scale * (g - (sum(g) + h * sum(g * h)) / count)``.

    ``h``: normalized input. ``sums``: ``sum(g)`` and ``sum(g * h)``.
    """
    dtype = g.type.dtype

    def compute(s: Scalars, v: Scalar, n: Scalar, r: Scalar, first: Scalar, second: Scalar) -> Scalar:
        share = s.div(s.add(first, s.mul(n, second)), s.size(count, dtype))
        return s.mul(s.sub(v, share), s.cast(r, dtype))

    return b.point(compute, [g, h, scale, *sums], type_, dtype=dtype, sizes=[count])


def normalized(
    b: Builder, call: OpCall, x: Value, weights: Sequence[Value | None], rows: Sequence[int]
) -> list[Value]:
    """Return the normalized input, the mean and the inverse deviation. ``rows``: dims of a row of ``x``."""
    out, mean_type, rstd_type = results(call)
    mean, square = moments(b, x, rows, wide(out.dtype))
    rstd = inverse_deviation(b, square, prod(x.type.shape[d] for d in rows), call["eps"])
    y = affine(b, x, mean, rstd, out.with_shape(x.type.shape), weights)
    return [finished(b, y, out), finished(b, mean, mean_type), finished(b, rstd, rstd_type)]


def gradients(
    b: Builder, call: OpCall, read: Sequence[Value | None], rows: Sequence[int], others: Sequence[int]
) -> list[Value | None]:
    """Return the gradients of input, weight and bias; the latter two are sums over the dims ``others``.

    With the normalized input h and g = grad * weight, dx = rstd * (g - mean(g) - h * mean(g * h)). The
    kernels of dx and of the weight's gradient both compute h, because that is cheaper than to store it.
    """
    grad, x, mean, rstd, weight = read
    assert grad is not None and x is not None and mean is not None and rstd is not None
    dtype, (dx, dw, db) = wide(grad.type.dtype), call.results
    whole = TensorType(x.type.shape, dtype)
    made: list[Value | None] = [None, None, None]

    def scaled(s: Scalars, v: Scalar, w: Scalar) -> Scalar:
        return s.mul(s.cast(v, dtype), s.cast(w, dtype))

    if dx is not None:
        h = affine(b, x, mean, rstd, whole)
        plain = weight is None
        g = converted(b, grad, dtype) if plain else b.point(scaled, [grad, weight], whole, dtype=dtype)
        sums = b.reduce("sum", g, rows), b.reduce("sum", b.point(scaled, [g, h], whole, dtype=dtype), rows)
        count = prod(x.type.shape[d] for d in rows)
        made[0] = finished(b, input_gradient(b, g, h, rstd, sums, count, dx.with_shape(x.type.shape)), dx)
    if dw is not None:
        h = affine(b, x, mean, rstd, whole)
        product = b.point(scaled, [grad, h], whole, dtype=dtype)
        made[1] = finished(b, b.reduce("sum", product, others), dw)
    if db is not None:
        made[2] = finished(b, b.reduce("sum", converted(b, grad, dtype), others), db)
    return made


def _rows(call: OpCall, x: Value | None) -> tuple[list[int], list[int]]:
    """Return the dims of a row, and the other dims."""
    assert x is not None
    rank, inner = len(x.type.shape), len(call["normalized_shape"])
    return list(range(rank - inner, rank)), list(range(rank - inner))


@lowers("aten.native_layer_norm")
def layer_norm(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    x, *weights = given(call, values)
    assert x is not None
    return normalized(b, call, x, weights, _rows(call, x)[0])


@lowers("aten.native_layer_norm_backward")
def layer_norm_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    read = given(call, values)
    return gradients(b, call, read[:5], *_rows(call, read[1]))
