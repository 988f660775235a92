"""Lowerings of losses and their gradients: the negative log likelihood, and pointwise losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.schema import parameters
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import Size
from shardc.passes.fuse.lower.gather import Read, outside, picked
from shardc.passes.fuse.lower.math import sigmoid
from shardc.passes.fuse.lower.reduction import divided, finished, summed
from shardc.passes.fuse.lower.scalars import Scalar, Scalars, wide
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value

NONE, MEAN = 0, 1  # at::Reduction


@lowers("aten.nll_loss_forward", "aten.nll_loss2d_forward")
def nll_loss(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    """Lower the negative log likelihood and its second result, the total weight of the targets.

    The loss is ``-x[target] * weight[target]``: per element, summed, or summed and divided by the total
    weight. The total weight is 0 if the loss is per element.
    """
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
    b.loose = True  # the gradient needs the total weight first, and may share a kernel with the loss
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
    return summed(b, x, range(len(x.type.shape))) if x.type.shape else x


@lowers("aten.nll_loss_backward", "aten.nll_loss2d_backward")
def nll_loss_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower the gradient: ``-grad * weight[target]`` at each target, 0 elsewhere.

    For a mean loss it is divided by the total weight.
    """
    (type_,) = results(call)
    rank = len(type_.shape)
    classes = min(1, rank - 1)
    ignored, dtype = call["ignore_index"], wide(type_.dtype)
    weighted, is_mean = call["weight"] is not None, call["reduction"] == MEAN
    grad, _, target, *rest = values

    def at_classes(x: Value) -> Value:
        """Return ``x`` with a dim for the classes if it has the other dims."""
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


def _compared(target: str, each: Callable[..., Scalar], heavy: bool = False) -> None:
    """Register a pointwise loss and its reduction.

    ``each``: function (scalars, *arguments of the call but ``reduction``) -> loss of one element. It gets
    None for an absent tensor.
    """

    @lowers(f"aten.{target}")
    def loss(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
        (type_,) = results(call)
        dtype = wide(type_.dtype)
        given = TensorType(_common_shape(values), dtype)
        made = b.point(_with_absent(call, each, dtype), values, given, dtype=dtype, heavy=heavy)
        if call["reduction"] != NONE:
            made = _summed(b, made)
        if call["reduction"] == MEAN:
            made = divided(b, made, given.numel)
        return [finished(b, made, type_)]


def _common_shape(values: Sequence[Value]) -> tuple[int, ...]:
    """Return the shape to which the tensors are broadcast."""
    shapes = {v.type.shape for v in values}
    if len(shapes) == 1:
        return shapes.pop()
    known = [tuple(n for n in shape if not isinstance(n, Size)) for shape in shapes]
    if set(known) != shapes:
        raise NotLowered("broadcasts sizes that may differ")
    return tuple(torch.broadcast_shapes(*known))


def _gradient(target: str, each: Callable[..., Scalar], heavy: bool = False) -> None:
    """Register the gradient of a pointwise loss. ``each`` takes the result's gradient as first argument."""

    @lowers(f"aten.{target}")
    def gradient(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
        (type_,) = results(call)
        dtype, expression = wide(type_.dtype), _with_absent(call, each, wide(type_.dtype))
        count = type_.numel if call["reduction"] == MEAN else None

        def compute(s: Scalars, *tensors: Scalar) -> Scalar:
            made = expression(s, *tensors)
            return made if count is None else s.div(made, s.size(count, dtype))

        return [b.point(compute, values, type_, dtype=dtype, heavy=heavy, sizes=[count] if count else [])]


def _with_absent(call: OpCall, each: Callable[..., Scalar], dtype: torch.dtype) -> Callable[..., Scalar]:
    """Return ``each`` as a function of the present tensors, which it converts to ``dtype``.

    All other arguments of the call but ``reduction`` are bound.
    """
    names = [name for name, _, _ in parameters(call.target) if name != "reduction"]

    def compute(s: Scalars, *tensors: Scalar) -> Scalar:
        rest = iter(tensors)
        given = [s.cast(next(rest), dtype) if isinstance(call[n], TensorType) else call[n] for n in names]
        return each(s, *given)

    return compute


def _square(s: Scalars, x: Scalar, y: Scalar) -> Scalar:
    gap = s.sub(x, y)
    return s.mul(gap, gap)


def _smooth(s: Scalars, x: Scalar, y: Scalar, beta: float) -> Scalar:
    gap = s.math("absf", s.sub(x, y))
    inside = s.div(s.mul(s.mul(gap, 0.5), gap), beta) if beta else gap
    return s.select(s.compare("lt", gap, beta), inside, s.sub(gap, 0.5 * beta))


def _smooth_backward(s: Scalars, grad: Scalar, x: Scalar, y: Scalar, beta: float) -> Scalar:
    gap = s.sub(x, y)
    inside = s.div(s.mul(gap, grad), beta) if beta else s.mul(gap, 0.0)
    return _clipped(s, gap, beta, grad, inside)


def _huber(s: Scalars, x: Scalar, y: Scalar, delta: float) -> Scalar:
    gap = s.math("absf", s.sub(x, y))
    inside, outside = s.mul(s.mul(gap, 0.5), gap), s.mul(s.sub(gap, 0.5 * delta), delta)
    return s.select(s.compare("le", gap, delta), inside, outside)


def _huber_backward(s: Scalars, grad: Scalar, x: Scalar, y: Scalar, delta: float) -> Scalar:
    gap = s.sub(x, y)
    return _clipped(s, gap, delta, s.mul(grad, delta), s.mul(gap, grad))


def _clipped(s: Scalars, gap: Scalar, bound: float, outside: Scalar, inside: Scalar) -> Scalar:
    """Return ``inside`` where ``|gap| < bound``, and ``outside`` with the sign of ``gap`` elsewhere."""
    high = s.select(s.compare("ge", gap, bound), outside, inside)
    return s.select(s.compare("le", gap, -bound), s.negate(outside), high)


def _cross_entropy(s: Scalars, x: Scalar, y: Scalar, weight: Scalar | None = None) -> Scalar:
    """Return the cross entropy of a probability; logarithms are at least -100, as in ATen."""
    log = s.maximum(s.math("log", x), -100.0)
    log_other = s.maximum(s.math("log1p", s.negate(x)), -100.0)
    made = s.sub(s.mul(s.sub(y, 1.0), log_other), s.mul(y, log))
    return made if weight is None else s.mul(made, weight)


def _cross_entropy_backward(
    s: Scalars, grad: Scalar, x: Scalar, y: Scalar, weight: Scalar | None = None
) -> Scalar:
    spread = s.maximum(s.mul(s.sub(1.0, x), x), 1e-12)
    made = s.div(s.mul(grad, s.sub(x, y)), spread)
    return made if weight is None else s.mul(made, weight)


def _of_logits(
    s: Scalars, x: Scalar, y: Scalar, weight: Scalar | None = None, positive: Scalar | None = None
) -> Scalar:
    soft = s.math("log1p", s.math("exp", s.negate(s.math("absf", x))))
    log = s.sub(s.minimum(x, 0.0), soft)  # of the sigmoid
    if positive is not None:
        log = s.mul(log, s.add(s.mul(s.sub(positive, 1.0), y), 1.0))
    made = s.sub(s.mul(s.sub(1.0, y), x), log)
    return made if weight is None else s.mul(made, weight)


def _soft_margin(s: Scalars, x: Scalar, y: Scalar) -> Scalar:
    return s.math("log1p", s.math("exp", s.negate(s.mul(x, y))))


def _soft_margin_backward(s: Scalars, grad: Scalar, x: Scalar, y: Scalar) -> Scalar:
    return s.mul(s.mul(s.negate(y), sigmoid(s, s.negate(s.mul(x, y)))), grad)


def _square_backward(s: Scalars, grad: Scalar, x: Scalar, y: Scalar) -> Scalar:
    return s.mul(s.mul(s.sub(x, y), 2.0), grad)


_compared("mse_loss", _square)
_gradient("mse_loss_backward", _square_backward)
_compared("smooth_l1_loss", _smooth)
_gradient("smooth_l1_loss_backward", _smooth_backward)
_compared("huber_loss", _huber)
_gradient("huber_loss_backward", _huber_backward)
_compared("binary_cross_entropy", _cross_entropy, heavy=True)
_gradient("binary_cross_entropy_backward", _cross_entropy_backward, heavy=True)
_compared("binary_cross_entropy_with_logits", _of_logits, heavy=True)
_compared("soft_margin_loss", _soft_margin, heavy=True)
_gradient("soft_margin_loss_backward", _soft_margin_backward, heavy=True)
