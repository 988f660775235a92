"""Layer norm and RMS norm with their gradients, as sums over rows and over columns."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.lower.reduction import converted, finished, moments
from shardc.passes.fuse.lower.scalars import wide
from shardc.passes.fuse.lower.table import given, lowers
from shardc.passes.fuse.reading.graph import Builder, Value


def _rows(call: OpCall, x: Value) -> tuple[list[int], list[int]]:
    """The dims that count rows, and those that a row has."""
    rank, inner = len(x.type.shape), len(call["normalized_shape"])
    return list(range(rank - inner)), list(range(rank - inner, rank))


@lowers("aten.native_layer_norm")
def layer_norm(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    x, weight, bias = given(call, values)
    assert x is not None
    out, mean_type, rstd_type = call.results
    assert out is not None and mean_type is not None and rstd_type is not None
    dtype, (_, dims), eps = wide(out.dtype), _rows(call, x), call["eps"]
    count = prod(x.type.shape[d] for d in dims)
    mean, square = moments(b, x, dims, dtype)

    def inverse(s, v):
        return s.math("rsqrt", s.add(s.div(v, s.size(count, v.dtype)), eps))

    rstd = b.point(inverse, [square], square.type, heavy=True, sizes=[count])

    def compute(s, v, m, r, *rest):
        y = s.mul(s.sub(s.cast(v, dtype), m), r)
        terms = iter(s.cast(t, dtype) for t in rest)
        y = s.mul(y, next(terms)) if weight is not None else y
        return s.add(y, next(terms)) if bias is not None else y

    affine = [t for t in (weight, bias) if t is not None]
    y = b.point(compute, [x, mean, rstd, *affine], out, dtype=dtype)
    return [y, finished(b, mean, mean_type), finished(b, rstd, rstd_type)]


@lowers("aten.native_layer_norm_backward")
def layer_norm_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    """With the normalized input h and g = grad * weight: dx = rstd * (g - mean(g) - h * mean(g * h))."""
    grad, x, mean, rstd, weight, _ = given(call, values)
    assert grad is not None and x is not None and mean is not None and rstd is not None
    dtype, (outer, dims) = wide(grad.type.dtype), _rows(call, x)
    count = prod(x.type.shape[d] for d in dims)
    wide_type = TensorType(x.type.shape, dtype)
    to = lambda s, v: s.cast(v, dtype)  # noqa: E731
    made: list[Value | None] = [None, None, None]

    def normalized() -> Value:
        """Computed in each of the two kernels, as it is cheaper to compute than to write and read."""
        compute = lambda s, v, m, r: s.mul(s.sub(to(s, v), to(s, m)), to(s, r))  # noqa: E731
        return b.point(compute, [x, mean, rstd], wide_type, dtype=dtype)

    if call.results[0] is not None:
        scaled = [grad] if weight is None else [grad, weight]
        h = normalized()
        g = b.point(
            lambda s, v, *w: s.mul(to(s, v), to(s, w[0])) if w else to(s, v), scaled, wide_type, dtype=dtype
        )
        product = b.point(lambda s, v, n: s.mul(v, n), [g, h], wide_type)
        sums = b.reduce("sum", g, dims), b.reduce("sum", product, dims)

        def compute(s, v, n, r, first, second):
            share = s.div(s.add(first, s.mul(n, second)), s.size(count, dtype))
            return s.mul(s.sub(v, share), to(s, r))

        made[0] = b.point(compute, [g, h, rstd, *sums], call.results[0], dtype=dtype, sizes=[count])
    if call.results[1] is not None:
        product = b.point(lambda s, v, n: s.mul(to(s, v), n), [grad, normalized()], wide_type, dtype=dtype)
        made[1] = finished(b, b.reduce("sum", product, outer), call.results[1])
    if call.results[2] is not None:
        made[2] = finished(b, b.reduce("sum", converted(b, grad, dtype), outer), call.results[2])
    return made
