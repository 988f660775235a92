"""Ops that combine the elements of a dim: what is no element takes no part."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from shardc.frontend.selected.rewriter import Rewriter, handles, with_dim
from shardc.frontend.selected.selection import Value
from shardc.runtime.torch_private import schema_of

aten = torch.ops.aten


@handles(
    aten.all.default,
    aten.all.dim,
    aten.all.dims,
    aten.amax.default,
    aten.amin.default,
    aten.any.default,
    aten.any.dim,
    aten.any.dims,
    aten.prod.default,
    aten.prod.dim_int,
    aten.sum.default,
    aten.sum.dim_IntList,
)
def _reduce(r: Rewriter, node: Node) -> Value:
    value, rank = r.value(node.args[0]), node.args[0].meta["val"].dim()  # type: ignore[union-attr]
    given = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    dims = [given] if isinstance(given, int) else list(given or range(rank))  # type: ignore[call-overload]
    dims = [dim % rank for dim in dims]
    name = schema_of(node.target).name.removeprefix("aten::")  # type: ignore[union-attr]
    fill = _NEUTRAL[name](value.node.meta["val"].dtype)
    made = r.call(node.target, r.filled(value, dims, fill), *node.args[1:], **node.kwargs)
    keeps = made.meta["val"].dim() == rank
    return Value(
        made, tuple(None if d in dims else s for d, s in enumerate(value.dims) if keeps or d not in dims)
    )


def _least(dtype: torch.dtype) -> Any:
    return -torch.inf if dtype.is_floating_point else False if dtype == torch.bool else torch.iinfo(dtype).min


def _greatest(dtype: torch.dtype) -> Any:
    return torch.inf if dtype.is_floating_point else True if dtype == torch.bool else torch.iinfo(dtype).max


_NEUTRAL = {
    "all": lambda dtype: dtype == torch.bool or 1,
    "amax": _least,
    "amin": _greatest,
    "any": lambda dtype: 0,
    "prod": lambda dtype: 1,
    "sum": lambda dtype: 0,
}


@handles(aten.cumsum.default)
def _cumsum(r: Rewriter, node: Node) -> Value:
    value = r.value(node.args[0])
    dim = node.args[1] % len(value.dims)  # type: ignore[operator]
    return Value(r.call(node.target, r.filled(value, [dim], 0), dim, **node.kwargs), value.dims)


@handles(aten.mm.default, aten.bmm.default)
def _matmul(r: Rewriter, node: Node) -> Value:
    return _product(r, node, *(r.value(factor) for factor in node.args[:2]))


@handles(aten.addmm.default)
def _addmm(r: Rewriter, node: Node) -> Value:
    bias, a, b = (r.value(term) for term in node.args)
    if any(bias.dims):
        raise r.refused(node)
    return _product(r, node, a, b, bias.node)


def _product(r: Rewriter, node: Node, a: Value, b: Value, *bias: Node) -> Value:
    """``[..., m, k] @ [..., k, n]``; both factors are 0 where ``k`` has no element,
    for 0 times infinity is no number.
    """
    rank = len(a.dims)
    for dim in range(rank - 2):
        (a, b), selection = r.agreed([a, b], [dim, dim])
        a, b = with_dim(a, dim, selection), with_dim(b, dim, selection)
    (a, b), selection = r.agreed([a, b], [rank - 1, rank - 2])
    a, b = with_dim(a, rank - 1, selection), with_dim(b, rank - 2, selection)
    made = r.call(node.target, *bias, r.filled(a, [rank - 1], 0), r.filled(b, [rank - 2], 0), **node.kwargs)
    return Value(made, (*a.dims[:-1], b.dims[-1]))
