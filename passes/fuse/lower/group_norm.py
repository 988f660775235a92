"""Group norm with its gradients: the channels are taken apart into groups, each a row."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.lower.normalization import affine, input_gradient, inverse_deviation
from shardc.passes.fuse.lower.reduction import converted, finished, moments
from shardc.passes.fuse.lower.scalars import wide
from shardc.passes.fuse.lower.table import given, lowers
from shardc.passes.fuse.reading.builder import Builder
from shardc.passes.fuse.reading.graph import Value


class _Groups:
    """How a tensor of ``[batch, channels, ...]`` is seen: as ``[batch, groups, channels of one, ...]``."""

    def __init__(self, b: Builder, call: OpCall, x: Value) -> None:
        self._b, groups, (batch, channels, *others) = b, call["group"], x.type.shape
        self.shape = (batch, groups, channels // groups, *others)
        self.rows = list(range(2, len(self.shape)))
        self.others = [0, *self.rows[1:]]

    def whole(self, x: Value) -> Value:
        return self._b.seen(x, self.shape)

    def weight(self, w: Value) -> Value:
        """Something for each channel."""
        return self._b.seen(w, (*self.shape[1:3], *[1] * (len(self.shape) - 3)))

    def statistic(self, x: Value) -> Value:
        """Something for each group of each sample."""
        return self._b.seen(x, (*self.shape[:2], *[1] * len(self.rows)))


@lowers("aten.native_group_norm")
def group_norm(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    x, weight, bias = given(call, values)
    out, mean_type, rstd_type = call.results
    assert x is not None and out is not None and mean_type is not None and rstd_type is not None
    seen = _Groups(b, call, x)
    x = seen.whole(x)
    mean, square = moments(b, x, seen.rows, wide(out.dtype))
    rstd = inverse_deviation(b, square, prod(seen.shape[d] for d in seen.rows), call["eps"])
    weights = [None if w is None else seen.weight(w) for w in (weight, bias)]
    y = affine(b, x, mean, rstd, out.with_shape(seen.shape), weights)
    return [b.reshape(y, out.shape), finished(b, mean, mean_type), finished(b, rstd, rstd_type)]


@lowers("aten.native_group_norm_backward")
def group_norm_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    """As layer norm's: with the normalized input h and g = grad w, dx = rstd (g - mean(g) - h mean(g h))."""
    grad, x, mean, rstd, weight = given(call, values)
    assert grad is not None and x is not None and mean is not None and rstd is not None
    seen, dtype = _Groups(b, call, x), wide(grad.type.dtype)
    whole = TensorType(seen.shape, dtype)
    grad, x = converted(b, seen.whole(grad), dtype), seen.whole(x)
    mean, rstd = seen.statistic(mean), seen.statistic(rstd)
    made: list[Value | None] = [None, None, None]

    if call.results[0] is not None:
        h, g = affine(b, x, mean, rstd, whole), grad
        if weight is not None:
            scale = seen.weight(weight)
            g = b.point(lambda s, v, w: s.mul(v, s.cast(w, dtype)), [grad, scale], whole, dtype=dtype)
        dx = input_gradient(b, g, h, rstd, seen.rows, call.results[0].with_shape(seen.shape))
        made[0] = b.reshape(dx, call.results[0].shape)
    if call.results[1] is not None:
        h = affine(b, x, mean, rstd, whole)
        product = b.point(lambda s, v, n: s.mul(v, n), [grad, h], whole, dtype=dtype)
        made[1] = finished(b, b.reduce("sum", product, seen.others), call.results[1])
    if call.results[2] is not None:
        made[2] = finished(b, b.reduce("sum", grad, seen.others), call.results[2])
    return made
