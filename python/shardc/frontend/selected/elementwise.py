"""Ops that compute each element of their result by itself, or each row; and tensors of one number."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

import shardc.runtime.operators.random  # noqa: F401  (registers shardc::uniform)
from shardc.frontend.selected.rewriter import Rewriter, handles, with_dim
from shardc.frontend.selected.selection import Number, Value, fixed
from shardc.runtime.torch_private import schema_of

aten = torch.ops.aten


@handles(
    torch.Tag.pointwise,
    aten._to_copy.default,
    aten.alias.default,
    aten.detach.default,
    aten.elu_backward.default,
    aten.hardtanh_backward.default,
    aten.leaky_relu_backward.default,
    aten.lift_fresh_copy.default,
    aten.masked_fill.Tensor,
)
def _elementwise(r: Rewriter, node: Node) -> Value:
    if not isinstance(node.meta["val"], torch.Tensor):
        raise r.refused(node)
    target, args = _on_tensors(r, node)
    values = {i: r.value(arg) for i, arg in enumerate(args) if isinstance(arg, Node)}
    rank = max(len(value.dims) for value in values.values())
    dims: list[Any] = [None] * rank
    for dim in range(rank):
        own = [dim - rank + len(v.dims) for v in values.values()]
        made, dims[dim] = r.agreed(list(values.values()), [d if d >= 0 else None for d in own])
        values = dict(zip(values, made, strict=True))
    nodes = [values[i].node if i in values else arg for i, arg in enumerate(args)]
    return Value(r.call(target, *nodes, **node.kwargs), tuple(dims))


def _on_tensors(r: Rewriter, node: Node) -> tuple[Any, list[Any]]:
    """The op and its arguments; numbers that depend on values are tensors, so it is the overload that takes
    one.
    """
    target: Any = node.target
    args = [r.number(argument) for argument in node.args]
    for declared, before in zip(schema_of(target).arguments, node.args, strict=False):
        is_number = isinstance(before, Node) and isinstance(r.values.get(before), Number)
        if is_number and str(declared.type) != "Tensor":
            names = (schema_of(target).overload_name.replace("Scalar", "Tensor"), "Tensor")
            packet = target.overloadpacket
            target = next((getattr(packet, name) for name in names if name in packet.overloads()), None)
            if target is None:
                raise r.refused(node)
            return target, args
    return target, args


@handles(
    aten.empty_like.default,
    aten.full_like.default,
    aten.ones_like.default,
    aten.zeros_like.default,
)
def _like(r: Rewriter, node: Node) -> Value:
    value = r.value(node.args[0])
    return Value(r.call(node.target, value.node, *_numbers(r, node, 1), **node.kwargs), value.dims)


@handles(aten.empty.memory_format, aten.ones.default, aten.zeros.default)
def _made(r: Rewriter, node: Node) -> Value:
    shape, dims = shape_of(r, node.meta["val"].shape)
    return Value(r.call(node.target, shape, dtype=node.meta["val"].dtype), dims)


@handles(aten.full.default)
def _full(r: Rewriter, node: Node) -> Value:
    shape, dims = shape_of(r, node.meta["val"].shape)
    fill, dtype = r.number(node.args[1]), node.meta["val"].dtype
    if not isinstance(fill, Node):
        return Value(r.call(node.target, shape, fill, dtype=dtype), dims)
    return Value(r.call(aten.expand.default, r.call(aten._to_copy.default, fill, dtype=dtype), shape), dims)


@handles(aten.new_empty.default, aten.new_full.default, aten.new_ones.default, aten.new_zeros.default)
def _made_like(r: Rewriter, node: Node) -> Value:
    shape, dims = shape_of(r, node.meta["val"].shape)
    source = r.value(node.args[0]).node
    return Value(r.call(node.target, source, shape, *_numbers(r, node, 2), **node.kwargs), dims)


def _numbers(r: Rewriter, node: Node, first: int) -> tuple[Any, ...]:
    """Arguments from the first on, of which none may depend on values."""
    if any(isinstance(argument, Node) for argument in node.args[first:]):
        raise r.refused(node)
    return node.args[first:]


@handles(torch.ops.shardc.uniform.default)
def _uniform(r: Rewriter, node: Node) -> Value:
    """Numbers drawn by place, so that they are the same whichever other places hold an element."""
    shape, dims = shape_of(r, node.meta["val"].shape)
    return Value(r.call(node.target, *node.args[:2], shape, [0] * len(shape), shape, **node.kwargs), dims)


@handles(aten.arange.default)
def _arange(r: Rewriter, node: Node) -> Value:
    selection = r.of_size(node.meta["val"].shape[0])
    return Value(r.rank(selection), (selection,))


def shape_of(r: Rewriter, sizes: Any) -> tuple[list[int], tuple[Any, ...]]:
    """The fixed shape and the selections that stand for a shape of which some sizes depend on values."""
    dims = [None if fixed(size) is not None else r.of_size(size) for size in sizes]
    return [fixed(size) if dim is None else dim.size for size, dim in zip(sizes, dims, strict=True)], tuple(
        dims
    )


@handles(aten._softmax.default, aten._log_softmax.default)
def _softmax(r: Rewriter, node: Node) -> Value:
    value, dim = r.value(node.args[0]), _dim(node, 1)
    return Value(r.call(node.target, r.filled(value, [dim], -torch.inf), dim, *node.args[2:]), value.dims)


@handles(aten._softmax_backward_data.default, aten._log_softmax_backward_data.default)
def _softmax_backward(r: Rewriter, node: Node) -> Value:
    (grad, out), dim = _same_places(r, node.args[:2]), node.args[2]
    dim %= len(grad.dims)
    return Value(
        r.call(node.target, r.filled(grad, [dim], 0), r.filled(out, [dim], 0), dim, *node.args[3:]), grad.dims
    )


@handles(aten.native_layer_norm.default)
def _layer_norm(r: Rewriter, node: Node) -> tuple[Value, ...]:
    value, normalized = r.value(node.args[0]), len(node.args[1])
    if any(value.dims[-normalized:]):
        raise r.refused(node)
    made = r.call(node.target, value.node, *node.args[1:])
    statistics = (*value.dims[:-normalized], *(None,) * normalized)
    return tuple(
        Value(_part(r, made, i), dims) for i, dims in enumerate((value.dims, statistics, statistics))
    )


@handles(aten.native_layer_norm_backward.default)
def _layer_norm_backward(r: Rewriter, node: Node) -> tuple[Value, ...]:
    grad, x, mean, rstd = _same_places(r, (*node.args[:2], *node.args[3:5]))
    normalized = len(node.args[2])
    if any(x.dims[-normalized:]):
        raise r.refused(node)
    whole = [r.filled(value, range(len(value.dims)), 0) for value in (grad, x, mean, rstd)]
    made = r.call(node.target, *whole[:2], node.args[2], *whole[2:], *node.args[5:])
    return tuple(
        Value(_part(r, made, i), dims)
        for i, dims in enumerate((x.dims, (None,) * normalized, (None,) * normalized))
    )


def _part(r: Rewriter, made: Node, index: int) -> Node:
    return r.call(operator.getitem, made, index)


def _dim(node: Node, position: int) -> int:
    return node.args[position] % node.meta["val"].dim()


def _same_places(r: Rewriter, nodes: Any) -> list[Value]:
    """Values of one rank whose dims mean the same elements."""
    values = [r.value(node) for node in nodes]
    for dim in range(len(values[0].dims)):
        values, selection = r.agreed(values, [dim] * len(values))
        values = [with_dim(v, dim, selection) if v.shape[dim] != 1 else v for v in values]
    return values
