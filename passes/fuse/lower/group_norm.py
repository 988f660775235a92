"""Lowerings of group norm and its gradients. A row is one sample's values of one group of channels."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.dialects.aten.call import OpCall
from shardc.passes.fuse.lower.normalization import gradients, normalized
from shardc.passes.fuse.lower.reduction import converted
from shardc.passes.fuse.lower.scalars import wide
from shardc.passes.fuse.lower.table import given, lowers
from shardc.passes.fuse.reading.builder import Builder
from shardc.passes.fuse.reading.graph import Value


class _Groups:
    """View of a tensor ``[batch, channels, ...]`` as ``[batch, groups, channels per group, ...]``."""

    def __init__(self, b: Builder, call: OpCall, x: Value) -> None:
        self._b, groups, (batch, channels, *others) = b, call["group"], x.type.shape
        self.shape = (batch, groups, channels // groups, *others)
        self.rows = list(range(2, len(self.shape)))
        self.others = [0, *self.rows[1:]]

    def whole(self, x: Value) -> Value:
        return self._b.seen(x, self.shape)

    def weight(self, w: Value | None) -> Value | None:
        """Return a tensor of one number per channel in the form of the groups."""
        return None if w is None else self._b.seen(w, (*self.shape[1:3], *[1] * (len(self.shape) - 3)))

    def statistic(self, x: Value) -> Value:
        """Return a tensor of one number per sample and group in the form of the groups."""
        return self._b.seen(x, (*self.shape[:2], *[1] * len(self.rows)))


@lowers("aten.native_group_norm")
def group_norm(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    x, *weights = given(call, values)
    assert x is not None
    seen = _Groups(b, call, x)
    return normalized(b, call, seen.whole(x), list(map(seen.weight, weights)), seen.rows)


@lowers("aten.native_group_norm_backward")
def group_norm_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    grad, x, mean, rstd, weight = given(call, values)
    assert grad is not None and x is not None and mean is not None and rstd is not None
    seen = _Groups(b, call, x)
    grad = converted(b, seen.whole(grad), wide(grad.type.dtype))
    read = [grad, seen.whole(x), *map(seen.statistic, (mean, rstd)), seen.weight(weight)]
    return gradients(b, call, read, seen.rows, seen.others)
