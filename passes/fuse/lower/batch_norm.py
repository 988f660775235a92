"""Lowerings of batch norm and its gradients. A row is one channel's values over the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.lower.normalization import affine, input_gradient
from shardc.passes.fuse.lower.reduction import converted, divided, finished, moments
from shardc.passes.fuse.lower.scalars import Scalar, Scalars, wide
from shardc.passes.fuse.lower.table import given, lowers
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value


def _channels(b: Builder, x: Value, rank: int) -> Value:
    """Return one number per channel in a form that broadcasts to a tensor of ``rank`` dims."""
    return b.seen(x, (x.type.shape[0], *[1] * (rank - 2)))


def _weights(b: Builder, weights: Sequence[Value | None], rank: int) -> list[Value | None]:
    return [None if w is None else _channels(b, w, rank) for w in weights]


def _others(x: Value) -> list[int]:
    return [d for d in range(len(x.type.shape)) if d != 1]


def _rstd(b: Builder, var: Value, eps: float, type_: TensorType) -> Value:
    dtype = type_.dtype
    return b.point(lambda s, v: s.math("rsqrt", s.add(s.cast(v, dtype), eps)), [var], type_, heavy=True)


@lowers("aten._native_batch_norm_legit_functional", "aten._native_batch_norm_legit.no_stats")
def batch_norm(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    """Lower training's batch norm, which uses the batch's statistics and updates the running statistics."""
    if not call["training"]:
        raise NotLowered("normalizes by running statistics in a form that does not return them")
    x, weight, bias, *running = given(call, values)
    assert x is not None
    dims, (out, mean_type, rstd_type, *new_types) = _others(x), call.results
    count = prod(x.type.shape[d] for d in dims)
    if count == 1 or out is None or mean_type is None or rstd_type is None:
        raise NotLowered("has only one value per channel")
    dtype, momentum = wide(out.dtype), call["momentum"]
    mean, square = moments(b, x, dims, dtype)
    var = divided(b, square, count)
    rstd = _rstd(b, var, call["eps"], square.type)
    rank = len(x.type.shape)
    y = affine(b, x, mean, rstd, out, _weights(b, (weight, bias), rank))
    made: list[Value | None] = [y, finished(b, mean, mean_type), finished(b, rstd, rstd_type)]
    unbiased = divided(b, square, count - 1)
    for old, new, type_ in zip(running, (mean, unbiased), new_types, strict=False):
        if old is None or type_ is None:
            raise NotLowered("has no running statistics")

        def moved(s: Scalars, before: Scalar, now: Scalar) -> Scalar:
            return s.add(s.mul(now, momentum), s.mul(s.cast(before, dtype), 1 - momentum))

        made.append(finished(b, b.point(moved, [_channels(b, old, rank), new], mean.type), type_))
    return made


@lowers("aten._native_batch_norm_legit_no_training")
def batch_norm_inference(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    """Lower inference's batch norm, which uses the running statistics. The other two results are empty."""
    x, weight, bias, mean, var = given(call, values)
    (out, *_), rank = call.results, len(call.tensors[0].shape)
    assert x is not None and mean is not None and var is not None and out is not None
    var = _channels(b, var, rank)
    rstd = _rstd(b, var, call["eps"], TensorType(var.type.shape, wide(out.dtype)))
    weights = _weights(b, (weight, bias), rank)
    return [affine(b, x, _channels(b, mean, rank), rstd, out, weights), None, None]


@lowers("aten.native_batch_norm_backward")
def batch_norm_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    """Lower the gradients of training's batch norm.

    With the normalized input h: dw = sum(grad h), db = sum(grad), dx = w rstd (grad - (db + h dw) / n).
    """
    grad, x, weight, _, _, mean, rstd = given(call, values)
    assert grad is not None and x is not None
    if not call["train"] or mean is None or rstd is None:
        raise NotLowered("is the gradient of a batch norm that used its running statistics")
    dtype, dims, rank = wide(grad.type.dtype), _others(x), len(x.type.shape)
    count, whole = prod(x.type.shape[d] for d in dims), TensorType(x.type.shape, dtype)
    mean, rstd = _channels(b, mean, rank), _channels(b, rstd, rank)
    h = affine(b, x, mean, rstd, whole)
    grad = converted(b, grad, dtype)
    product = b.point(lambda s, g, n: s.mul(g, n), [grad, h], whole)
    dw, db = b.reduce("sum", product, dims), b.reduce("sum", grad, dims)
    made: list[Value | None] = [None, None, None]
    if call.results[0] is not None:
        scale = rstd
        if weight is not None:
            each, terms = TensorType(rstd.type.shape, dtype), [rstd, _channels(b, weight, rank)]

            def product_of(s: Scalars, r: Scalar, w: Scalar) -> Scalar:
                return s.mul(s.cast(r, dtype), s.cast(w, dtype))

            scale = b.point(product_of, terms, each, dtype=dtype)
        made[0] = input_gradient(b, grad, h, scale, (db, dw), count, call.results[0])
    for position, total in ((1, dw), (2, db)):
        type_ = call.results[position]
        made[position] = None if type_ is None else finished(b, total, type_)
    return made
