"""Numbers that Python code reads from tensors: sizes, ``item``, and arithmetic on them."""

from __future__ import annotations

import functools
import operator

import torch
from torch.fx import Node
from torch.fx.node import Argument

from shardc.frontend.nodes import dim_at, node_at
from shardc.frontend.selected.rewriter import Rewriter, handles
from shardc.frontend.selected.selection import Number, Selection, Value

aten = torch.ops.aten
_WIDE: dict[type, torch.dtype] = {int: torch.int64, float: torch.float64, bool: torch.bool}

_ARITHMETIC = {
    operator.add: aten.add.Tensor,
    operator.sub: aten.sub.Tensor,
    operator.mul: aten.mul.Tensor,
    operator.truediv: aten.div.Tensor,
    operator.mod: aten.remainder.Tensor,
    operator.neg: aten.neg.default,
    operator.eq: aten.eq.Tensor,
    operator.ne: aten.ne.Tensor,
    operator.lt: aten.lt.Tensor,
    operator.le: aten.le.Tensor,
    operator.gt: aten.gt.Tensor,
    operator.ge: aten.ge.Tensor,
    torch.sym_max: aten.maximum.default,
    torch.sym_min: aten.minimum.default,
    torch.sym_not: aten.logical_not.default,
}


@handles(aten._local_scalar_dense.default)
def _item(r: Rewriter, node: Node) -> Number:
    source = r.value(node.args[0])
    return Number(_as(r, source.node, _WIDE[node.meta["val"].node.pytype]))


@handles(aten.sym_size.int)
def _size(r: Rewriter, node: Node) -> Number:
    value = r.value(node.args[0])
    dim = dim_at(node, 1, len(value.dims))
    return Number(_count(r, value.shape[dim], value.dims[dim]))


@handles(aten.sym_numel.default)
def _numel(r: Rewriter, node: Node) -> Number:
    value = r.value(node.args[0])
    counts = [_count(r, size, selection) for size, selection in zip(value.shape, value.dims, strict=True)]
    return Number(functools.reduce(lambda a, b: r.call(aten.mul.Tensor, a, b), counts))


@handles(*_ARITHMETIC)
def _arithmetic(r: Rewriter, node: Node) -> Number:
    return Number(r.call(_ARITHMETIC[node.target], *(_tensor(r, argument) for argument in node.args)))


@handles(operator.getitem)
def _part(r: Rewriter, node: Node) -> Value:
    parts, index = r.values[node_at(node)], node.args[1]
    assert isinstance(parts, tuple) and isinstance(index, int)
    return parts[index]


@handles(operator.floordiv)
def _floordiv(r: Rewriter, node: Node) -> Number:
    over, by = (_tensor(r, argument) for argument in node.args)
    return Number(r.call(aten.div.Tensor_mode, over, by, rounding_mode="floor"))


@handles(torch.sym_float, torch.sym_int)
def _cast(r: Rewriter, node: Node) -> Number:
    dtype = torch.float64 if node.target is torch.sym_float else torch.int64
    return Number(_as(r, _tensor(r, node.args[0]), dtype))


@handles(aten.scalar_tensor.default)
def _scalar_tensor(r: Rewriter, node: Node) -> Node:
    number = r.number(node.args[0])
    assert isinstance(number, Node)
    return _as(r, number, node.meta["val"].dtype)


def _tensor(r: Rewriter, argument: Argument) -> Node:
    number = r.number(argument)
    if isinstance(number, Node):
        return number
    return r.call(aten.full.default, [], number, dtype=_WIDE[type(number)])


def _as(r: Rewriter, node: Node, dtype: torch.dtype) -> Node:
    return node if node.meta["val"].dtype == dtype else r.call(aten._to_copy.default, node, dtype=dtype)


def _count(r: Rewriter, size: int, selection: Selection | None) -> Node:
    if selection is None:
        return r.call(aten.full.default, [], size, dtype=torch.int64)
    return r.count(selection)
