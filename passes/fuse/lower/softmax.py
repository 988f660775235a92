"""Lowerings of softmax, log-softmax, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.lower.reduction import converted
from shardc.passes.fuse.lower.scalars import Scalar, Scalars, wide
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value


def _shifted(b: Builder, call: OpCall, x: Value) -> tuple[Value, Value, Value, Value]:
    """Return ``x - max(x)``, its exponentials, their sum, and the maximum."""
    if not x.type.shape:
        raise NotLowered("works on a number, not a tensor")
    if not results(call)[0].dtype.is_floating_point:
        raise NotLowered("works on integers")
    dim, dtype = call["dim"] % len(x.type.shape), wide(results(call)[0].dtype)
    x = converted(b, x, dtype) if x.type.dtype != dtype else x
    largest = b.reduce("max", x, [dim])
    type_ = TensorType(x.type.shape, dtype)
    shifted = b.point(lambda s, v, m: s.sub(v, m), [x, largest], type_)
    powers = b.point(lambda s, v: s.math("exp", v), [shifted], type_, heavy=True)
    return shifted, powers, b.reduce("sum", powers, [dim]), largest


@lowers("aten._softmax")
def softmax(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    _, powers, total, _ = _shifted(b, call, values[0])
    share = _share(b, total)
    return [b.point(lambda s, v, t: s.mul(v, t), [powers, share], results(call)[0], heavy=True)]


def _share(b: Builder, total: Value) -> Value:
    """Return ``1 / total``, so that a row needs one division instead of one per element.

    ``total`` is a sum of exponentials that is at least 1.
    """
    return b.point(lambda s, t: s.div(1.0, t), [total], total.type, heavy=True)


@lowers("aten._safe_softmax")
def safe_softmax(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower a softmax that is 0 in rows whose elements are all minus infinity."""
    _, powers, total, largest = _shifted(b, call, values[0])

    def compute(s: Scalars, v: Scalar, t: Scalar, m: Scalar) -> Scalar:
        return s.select(s.compare("eq", m, -inf), 0, s.mul(v, t))

    return [b.point(compute, [powers, _share(b, total), largest], results(call)[0], heavy=True)]


@lowers("aten._log_softmax")
def log_softmax(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    shifted, _, total, _ = _shifted(b, call, values[0])
    log = b.point(lambda s, t: s.math("log", t), [total], total.type, heavy=True)
    return [b.point(lambda s, v, t: s.sub(v, t), [shifted, log], results(call)[0])]


@lowers("aten._softmax_backward_data")
def softmax_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    grad, output = _both(b, call, values)
    product = b.point(lambda s, g, y: s.mul(g, y), [grad, output], grad.type)
    total = b.reduce("sum", product, [call["dim"] % len(grad.type.shape)])
    return [b.point(lambda s, g, y, t: s.mul(s.sub(g, t), y), [grad, output, total], results(call)[0])]


@lowers("aten._log_softmax_backward_data")
def log_softmax_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    grad, output = _both(b, call, values)
    total = b.reduce("sum", grad, [call["dim"] % len(grad.type.shape)])

    def compute(s: Scalars, g: Scalar, y: Scalar, t: Scalar) -> Scalar:
        return s.sub(g, s.mul(s.math("exp", y), t))

    return [b.point(compute, [grad, output, total], results(call)[0], heavy=True)]


def _both(b: Builder, call: OpCall, values: Sequence[Value]) -> tuple[Value, Value]:
    if not values[0].type.shape:
        raise NotLowered("works on a number, not a tensor")
    if not values[0].type.dtype.is_floating_point:
        raise NotLowered("works on integers")
    dtype = wide(values[0].type.dtype)
    return converted(b, values[0], dtype), converted(b, values[1], dtype)
