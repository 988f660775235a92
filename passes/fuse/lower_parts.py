"""Tensors put together from equal parts of a dim: concatenations, and the gradients of slices and selections.

The dim is taken as ``parts x size``, and each element chooses the part that it comes from by its index in the first.
Parts of different sizes are left to ATen, which copies them one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.graph import Builder, NotLowered, Value
from shardc.passes.fuse.scalars import Scalar, Scalars
from shardc.passes.fuse.table import lowers, results

MAX_PARTS = 8
"""Parts of a concatenation: each element looks at all of them."""


def _chosen(
    b: Builder, parts: Sequence[Value], type_: TensorType, dim: int, choose: Callable[..., Scalar]
) -> Value:
    """``choose(scalars, index, *parts)`` over a tensor of ``type_``, whose ``dim`` is the index; parts have size 1 there."""

    def compute(s: Scalars, *terms: Scalar) -> Scalar:
        *given, index = terms
        return choose(s, s.cast(index, torch.int32), *(s.cast(x, s.compute) for x in given))

    return b.point(compute, parts, type_, indices=[[dim]])


def _select_one(position: int) -> Callable[..., Scalar]:
    """The one part at ``position``, zeros elsewhere."""
    return lambda s, index, x: s.select(s.compare("eq", index, position), x, 0)


@lowers("aten.cat")
def cat(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (type_,) = results(call)
    rank, shape = len(type_.shape), values[0].type.shape
    dim = call["dim"] % rank
    if any(v.type.shape != shape for v in values):
        raise NotLowered("concatenates parts of different sizes")
    if len(values) > MAX_PARTS:
        raise NotLowered(f"concatenates more than {MAX_PARTS} parts")
    split = (*shape[:dim], len(values), *shape[dim:])
    parts = [b.seen(v, (*shape[:dim], 1, *shape[dim:])) for v in values]

    def choose(s: Scalars, index: Scalar, *given: Scalar) -> Scalar:
        chosen = given[-1]
        for number in reversed(range(len(given) - 1)):
            chosen = s.select(s.compare("eq", index, number), given[number], chosen)
        return chosen

    return [b.merged(_chosen(b, parts, type_.with_shape(split), dim, choose), dim)]


@lowers("aten.slice_backward")
def slice_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (grad,), (type_,) = values, results(call)
    dim = call["dim"] % len(type_.shape)
    whole, part = type_.shape[dim], grad.type.shape[dim]
    before, after = type_.shape[:dim], type_.shape[dim + 1 :]
    if part == whole:
        return [b.point(lambda s, x: x, [grad], type_)]
    first, _, step = slice(call["start"], call["end"], call["step"]).indices(whole)
    if step == 1 and whole % part == 0 and first % part == 0:
        shape, seen = (*before, whole // part, part, *after), (*before, 1, part, *after)
        return [b.merged(_chosen(b, [b.seen(grad, seen)], type_.with_shape(shape), dim, _select_one(first // part)), dim)]
    if step > 1 and whole == part * step:
        shape, seen = (*before, part, step, *after), (*before, part, 1, *after)
        return [b.merged(_chosen(b, [b.seen(grad, seen)], type_.with_shape(shape), dim + 1, _select_one(first)), dim)]
    raise NotLowered("is the gradient of a part that does not divide the dim")


@lowers("aten.select_backward")
def select_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (grad,), (type_,) = values, results(call)
    dim = call["dim"] % len(type_.shape)
    seen = b.seen(grad, (*type_.shape[:dim], 1, *type_.shape[dim + 1 :]))
    return [_chosen(b, [seen], type_, dim, _select_one(call["index"] % type_.shape[dim]))]
