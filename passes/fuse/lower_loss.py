"""Gradients of losses over classes. The losses themselves are left to ATen: they read one element a row, and say which target
is no class.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.dialects.aten.call import OpCall
from shardc.passes.fuse.graph import Builder, Value
from shardc.passes.fuse.scalars import Scalar, Scalars, wide
from shardc.passes.fuse.table import lowers, results

MEAN = 1  # at::Reduction


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
        shape = x.type.shape
        return b.seen(x, (*shape[:classes], 1, *shape[classes:])) if len(shape) == rank - 1 and rank > 1 else x

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
