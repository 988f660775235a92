"""The negative log likelihood of classes, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.lower.gather import Read, outside, picked
from shardc.passes.fuse.lower.reduction import finished
from shardc.passes.fuse.lower.scalars import Scalar, Scalars, wide
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder
from shardc.passes.fuse.reading.graph import Value

NONE, MEAN = 0, 1  # at::Reduction


@lowers("aten.nll_loss_forward", "aten.nll_loss2d_forward")
def nll_loss(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    """``-x[target] * weight[target]``, summed or over the total weight; and that weight, 0 without a sum."""
    x, target, *weights = values
    rank, (out, total_type) = len(x.type.shape), call.results
    classes, ignored, dtype = min(1, rank - 1), call["ignore_index"], wide(x.type.dtype)
    count = x.type.shape[classes]
    shape = tuple(n for d, n in enumerate(x.type.shape) if d != classes)
    target = b.seen(target, shape)
    dims = [None if d == classes else d - (d > classes) for d in range(rank)]
    tables = [(x, dims), *((w, (None,)) for w in weights)]

    def counted(s: Scalars, t: Scalar) -> Scalar:
        return s.compare("ne", t, ignored)

    def wrong(s: Scalars, t: Scalar) -> Scalar:
        return s.bit("and", counted(s, t), outside(s, s.cast(t, torch.int64), 0, count))

    def loss(s: Scalars, t: Scalar, *read: Read) -> Scalar:
        first, *rest = (s.cast(picked(s, r, t, count), dtype) for r in read)
        share = s.negate(first)
        share = s.mul(share, rest[0]) if rest else share
        return s.select(counted(s, t), share, 0)

    def weight(s: Scalars, t: Scalar, *read: Read) -> Scalar:
        one = s.cast(picked(s, read[0], t, count), dtype) if read else s.constant(1, dtype)
        return s.select(counted(s, t), one, 0)

    each, apart = TensorType(shape, dtype), call["reduction"] == NONE and rank > 1
    b.loose = True  # the total weight comes before the gradient, which may be in one kernel with the loss
    b.check(target, wrong, "Target {} is out of bounds.", sizes=[count])
    if apart:
        total = b.point(lambda s: s.constant(0, dtype), [], TensorType((), dtype))
    else:
        total = _summed(b, b.point(weight, [target], each, sizes=[count], tables=tables[1:]))
    total_result = None if total_type is None else finished(b, total, total_type)
    b.loose = False
    result = b.point(loss, [target], each, sizes=[count], tables=tables)
    if not apart:
        result = _summed(b, result)
    if call["reduction"] == MEAN:
        result = b.point(lambda s, v, w: s.div(v, w), [result, total], result.type, dtype=dtype)
    return [None if out is None else finished(b, result, out), total_result]


def _summed(b: Builder, x: Value) -> Value:
    return b.reduce("sum", x, range(len(x.type.shape))) if x.type.shape else x


@lowers("aten.nll_loss_backward", "aten.nll_loss2d_backward")
def nll_loss_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """``-grad * weight[target]`` at each target, over the total weight if the loss is a mean."""
    (type_,) = results(call)
    rank = len(type_.shape)
    classes = min(1, rank - 1)
    ignored, dtype = call["ignore_index"], wide(type_.dtype)
    weighted, is_mean = call["weight"] is not None, call["reduction"] == MEAN
    grad, _, target, *rest = values

    def at_classes(x: Value) -> Value:
        """With a dim for the classes, if it has the others."""
        shape, has_others = x.type.shape, len(x.type.shape) == rank - 1 and rank > 1
        return b.seen(x, (*shape[:classes], 1, *shape[classes:])) if has_others else x

    inputs = [at_classes(grad), at_classes(target)]
    inputs += [b.seen(rest[0], (type_.shape[classes], *[1] * (rank - classes - 1)))] if weighted else []
    inputs += [rest[-1]] if is_mean else []

    def compute(s: Scalars, g: Scalar, t: Scalar, *more: Scalar) -> Scalar:
        *given, index = more
        terms = [s.cast(x, dtype) for x in given]
        share = s.cast(g, dtype)
        if is_mean:
            share = s.div(share, terms.pop())
        share = s.negate(share)
        if weighted:
            share = s.mul(terms.pop(), share)
        hit = s.compare("eq", s.cast(index, t.dtype), t)
        return s.select(s.bit("and", hit, s.compare("ne", t, ignored)), share, 0)

    return [b.point(compute, inputs, type_, dtype=dtype, indices=[[classes]])]
