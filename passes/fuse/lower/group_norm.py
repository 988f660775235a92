"""Group norm with its gradients: the channels are taken apart into groups, each a row."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.lower.reduction import converted, finished, moments
from shardc.passes.fuse.lower.scalars import Scalar, Scalars, wide
from shardc.passes.fuse.lower.table import given, lowers
from shardc.passes.fuse.reading.graph import Builder, Value


class _Groups:
    """How a tensor of ``[batch, channels, ...]`` is seen: as ``[batch, groups, channels of one, ...]``."""

    def __init__(self, b: Builder, call: OpCall, x: Value) -> None:
        self._b, self.groups = b, call["group"]
        channels = x.type.shape[1]
        self.shape = (x.type.shape[0], self.groups, channels // self.groups, *x.type.shape[2:])
        self.rows = list(range(2, len(self.shape)))
        self.count = prod(self.shape[d] for d in self.rows)
        self.others = [0, *self.rows[1:]]

    def whole(self, x: Value) -> Value:
        return self._b.split(x, 1, self.groups)

    def weight(self, w: Value) -> Value:
        """Something for each channel."""
        return self._b.seen(
            self._b.split(w, 0, self.groups), (*self.shape[1:3], *[1] * (len(self.shape) - 3))
        )

    def statistic(self, x: Value) -> Value:
        """Something for each group of each sample."""
        return self._b.seen(x, (*self.shape[:2], *[1] * len(self.rows)))


@lowers("aten.native_group_norm")
def group_norm(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    x, weight, bias = given(call, values)
    out, mean_type, rstd_type = call.results
    assert x is not None and out is not None and mean_type is not None and rstd_type is not None
    seen, dtype, eps = _Groups(b, call, x), wide(out.dtype), call["eps"]
    x = seen.whole(x)
    mean, square = moments(b, x, seen.rows, dtype)

    def inverse(s: Scalars, v: Scalar) -> Scalar:
        return s.math("rsqrt", s.add(s.div(v, s.size(seen.count, v.dtype)), eps))

    rstd = b.point(inverse, [square], square.type, heavy=True, sizes=[seen.count])

    def compute(s: Scalars, v: Scalar, m: Scalar, r: Scalar, *rest: Scalar) -> Scalar:
        terms = iter(s.cast(t, dtype) for t in rest)
        y = s.mul(s.sub(s.cast(v, dtype), m), r)
        y = s.mul(y, next(terms)) if weight is not None else y
        return s.add(y, next(terms)) if bias is not None else y

    affine = [seen.weight(w) for w in (weight, bias) if w is not None]
    y = b.point(compute, [x, mean, rstd, *affine], out.with_shape(seen.shape), dtype=dtype)
    return [b.merged(y, 1), finished(b, mean, mean_type), finished(b, rstd, rstd_type)]


@lowers("aten.native_group_norm_backward")
def group_norm_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    """As layer norm's: with the normalized input h and g = grad w, dx = rstd (g - mean(g) - h mean(g h))."""
    grad, x, mean, rstd, weight = given(call, values)
    assert grad is not None and x is not None and mean is not None and rstd is not None
    seen, dtype = _Groups(b, call, x), wide(grad.type.dtype)
    whole = TensorType(seen.shape, dtype)
    grad, x, mean, rstd = (
        converted(b, seen.whole(grad), dtype),
        seen.whole(x),
        seen.statistic(mean),
        seen.statistic(rstd),
    )
    made: list[Value | None] = [None, None, None]

    def normalized() -> Value:
        def compute(s: Scalars, v: Scalar, m: Scalar, r: Scalar) -> Scalar:
            return s.mul(s.sub(s.cast(v, dtype), s.cast(m, dtype)), s.cast(r, dtype))

        return b.point(compute, [x, mean, rstd], whole, dtype=dtype)

    def total(x: Value, type_: TensorType) -> Value:
        """For each channel."""
        summed = converted(b, b.reduce("sum", x, seen.others), type_.dtype)
        return b.merged(b.reshape(summed, seen.shape[1:3]), 0)

    if call.results[0] is not None:
        h, g = normalized(), grad
        if weight is not None:
            g = b.point(
                lambda s, v, w: s.mul(v, s.cast(w, dtype)), [grad, seen.weight(weight)], whole, dtype=dtype
            )
        product = b.point(lambda s, v, n: s.mul(v, n), [g, h], whole)
        sums = b.reduce("sum", g, seen.rows), b.reduce("sum", product, seen.rows)

        def compute(s: Scalars, v: Scalar, n: Scalar, r: Scalar, first: Scalar, second: Scalar) -> Scalar:
            share = s.div(s.add(first, s.mul(n, second)), s.size(seen.count, dtype))
            return s.mul(s.sub(v, share), s.cast(r, dtype))

        type_ = call.results[0].with_shape(seen.shape)
        dx = b.point(compute, [g, h, rstd, *sums], type_, dtype=dtype, sizes=[seen.count])
        made[0] = b.merged(dx, 1)
    if call.results[1] is not None:
        product = b.point(lambda s, v, n: s.mul(v, n), [grad, normalized()], whole, dtype=dtype)
        made[1] = total(product, call.results[1])
    if call.results[2] is not None:
        made[2] = total(grad, call.results[2])
    return made
