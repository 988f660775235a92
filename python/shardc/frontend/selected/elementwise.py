"""Ops that compute each element or each row of their result separately, and 0-d tensors."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch.fx import Node
from torch.fx.node import Argument

import shardc.runtime.operators.random  # noqa: F401  (registers shardc::uniform)
from shardc.frontend.nodes import dim_at, list_at, operator_of
from shardc.frontend.selected.rewriter import Rewriter, handles, with_dim
from shardc.frontend.selected.selection import Number, Selection, Size, Value, fixed
from shardc.runtime.torch_private import OpOverload, schema_of

aten = torch.ops.aten


@handles(
    *(torch.Tag.pointwise, aten.masked_fill.Tensor),
    *(aten._to_copy.default, aten.alias.default, aten.detach.default, aten.lift_fresh_copy.default),
    *(aten.elu_backward.default, aten.hardtanh_backward.default, aten.leaky_relu_backward.default),
)
def _elementwise(r: Rewriter, node: Node) -> Value:
    if not isinstance(node.meta["val"], torch.Tensor):
        raise r.refused(node)
    target, args = _on_tensors(r, node)
    values, dims = r.broadcast([r.value(arg) for arg in args if isinstance(arg, Node)])
    nodes = iter([value.node for value in values])
    made = [next(nodes) if isinstance(arg, Node) else arg for arg in args]
    return Value(r.call(target, *made, **node.kwargs), dims)


def _on_tensors(r: Rewriter, node: Node) -> tuple[OpOverload, list[Argument]]:
    """Return the op and its arguments, with the overload for tensors if a number depends on values."""
    target, args = operator_of(node), [r.number(argument) for argument in node.args]
    for declared, before in zip(schema_of(target).arguments, node.args, strict=False):
        is_number = isinstance(before, Node) and isinstance(r.values.get(before), Number)
        if is_number and str(declared.type) != "Tensor":
            packet = target.overloadpacket
            for name in (schema_of(target).overload_name.replace("Scalar", "Tensor"), "Tensor"):
                if name in packet.overloads():
                    return getattr(packet, name), args
            raise r.refused(node)
    return target, args


@handles(
    *(aten.clone.default, aten.empty_like.default),
    *(aten.full_like.default, aten.ones_like.default, aten.zeros_like.default),
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


def _numbers(r: Rewriter, node: Node, first: int) -> tuple[Argument, ...]:
    """Return the arguments from number ``first`` on; none may depend on values."""
    if any(isinstance(argument, Node) for argument in node.args[first:]):
        raise r.refused(node)
    return node.args[first:]


@handles(torch.ops.shardc.uniform.default)
def _uniform(r: Rewriter, node: Node) -> Value:
    """Draw numbers by place, so that they do not depend on which other places hold an element."""
    shape, dims = shape_of(r, node.meta["val"].shape)
    return Value(r.call(node.target, *node.args[:2], shape, [0] * len(shape), shape, **node.kwargs), dims)


@handles(aten.arange.default)
def _arange(r: Rewriter, node: Node) -> Value:
    selection = r.of_size(node.meta["val"].shape[0])
    return Value(r.rank(selection), (selection,))


def shape_of(r: Rewriter, sizes: Sequence[Size]) -> tuple[list[int], tuple[Selection | None, ...]]:
    """Return the fixed shape and the selections of a shape with sizes that depend on values."""
    known = [fixed(size) for size in sizes]
    dims = [r.of_size(size) if n is None else None for n, size in zip(known, sizes, strict=True)]
    return [dim.size if dim else n or 0 for n, dim in zip(known, dims, strict=True)], tuple(dims)


@handles(aten._softmax.default, aten._log_softmax.default)
def _softmax(r: Rewriter, node: Node) -> Value:
    value, dim = r.value(node.args[0]), dim_at(node, 1, node.meta["val"].dim())
    return Value(r.call(node.target, r.filled(value, [dim], -torch.inf), dim, *node.args[2:]), value.dims)


@handles(aten._softmax_backward_data.default, aten._log_softmax_backward_data.default)
def _softmax_backward(r: Rewriter, node: Node) -> Value:
    grad, out = _same_places(r, node.args[:2])
    dim = dim_at(node, 2, len(grad.dims))
    whole = r.filled(grad, [dim], 0), r.filled(out, [dim], 0)
    return Value(r.call(node.target, *whole, dim, *node.args[3:]), grad.dims)


@handles(aten.native_layer_norm.default)
def _layer_norm(r: Rewriter, node: Node) -> tuple[Value, ...]:
    value, normalized = r.value(node.args[0]), len(list_at(node, 1))
    if any(value.dims[-normalized:]):
        raise r.refused(node)
    made = r.call(node.target, value.node, *node.args[1:])
    statistics = (*value.dims[:-normalized], *(None,) * normalized)
    return _parts(r, made, value.dims, statistics, statistics)


@handles(aten.native_layer_norm_backward.default)
def _layer_norm_backward(r: Rewriter, node: Node) -> tuple[Value, ...]:
    grad, x, mean, rstd = _same_places(r, (*node.args[:2], *node.args[3:5]))
    normalized = len(list_at(node, 2))
    if any(x.dims[-normalized:]):
        raise r.refused(node)
    whole = [r.filled(value, range(len(value.dims)), 0) for value in (grad, x, mean, rstd)]
    made = r.call(node.target, *whole[:2], node.args[2], *whole[2:], *node.args[5:])
    return _parts(r, made, x.dims, (None,) * normalized, (None,) * normalized)


def _parts(r: Rewriter, made: Node, *dims: tuple[Selection | None, ...]) -> tuple[Value, ...]:
    """Return the results of a call with several results."""
    return tuple(Value(r.call(operator.getitem, made, i), own) for i, own in enumerate(dims))


def _same_places(r: Rewriter, nodes: Sequence[Argument]) -> list[Value]:
    """Return values of one rank with the same elements in each dim."""
    values = [r.value(node) for node in nodes]
    for dim in range(len(values[0].dims)):
        values, selection = r.agreed(values, [dim] * len(values))
        values = [with_dim(v, dim, selection) if v.shape[dim] != 1 else v for v in values]
    return values
