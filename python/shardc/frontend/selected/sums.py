"""Ops that combine the elements of a dim; places without an element are excluded."""

from __future__ import annotations

import torch
from torch.fx import Node

from shardc.frontend.nodes import dim_at, node_at, operator_of
from shardc.frontend.selected.rewriter import Rewriter, handles
from shardc.frontend.selected.selection import Value
from shardc.runtime.torch_private import schema_of

aten = torch.ops.aten


@handles(
    *(aten.all.default, aten.all.dim, aten.all.dims),
    *(aten.any.default, aten.any.dim, aten.any.dims),
    *(aten.amax.default, aten.amin.default),
    *(aten.prod.default, aten.prod.dim_int, aten.sum.default, aten.sum.dim_IntList),
)
def _reduce(r: Rewriter, node: Node) -> Value:
    value, rank = r.value(node.args[0]), node_at(node).meta["val"].dim()
    given = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    listed = [given] if isinstance(given, int) else given if isinstance(given, list | tuple) else []
    dims = [dim % rank for dim in listed or range(rank) if isinstance(dim, int)]
    name = schema_of(operator_of(node)).name.removeprefix("aten::")
    fill = _neutral(name, value.node.meta["val"].dtype)
    made = r.call(node.target, r.filled(value, dims, fill), *node.args[1:], **node.kwargs)
    keeps = made.meta["val"].dim() == rank
    left = [None if d in dims else s for d, s in enumerate(value.dims) if keeps or d not in dims]
    return Value(made, tuple(left))


def _neutral(name: str, dtype: torch.dtype) -> float:
    """Return the neutral element of a reduction."""
    if name in ("all", "any", "prod", "sum"):
        return (name == "all" and dtype == torch.bool) or int(name in ("all", "prod"))
    is_largest = name == "amin"
    if dtype.is_floating_point:
        return torch.inf if is_largest else -torch.inf
    if dtype == torch.bool:
        return is_largest
    return torch.iinfo(dtype).max if is_largest else torch.iinfo(dtype).min


@handles(aten.cumsum.default)
def _cumsum(r: Rewriter, node: Node) -> Value:
    value = r.value(node.args[0])
    dim = dim_at(node, 1, len(value.dims))
    return Value(r.call(node.target, r.filled(value, [dim], 0), dim, **node.kwargs), value.dims)


@handles(aten.mm.default, aten.bmm.default, aten.addmm.default)
def _product(r: Rewriter, node: Node) -> Value:
    """Multiply ``[..., m, k] @ [..., k, n]``; without an element in ``k`` both factors are 0."""
    *biases, a, b = (r.value(term) for term in node.args)
    if any(any(bias.dims) for bias in biases):
        raise r.refused(node)
    rank, bias = len(a.dims), [bias.node for bias in biases]
    for dim in range(rank - 2):
        a, b = r.matched([a, b], [dim, dim])
    a, b = r.matched([a, b], [rank - 1, rank - 2])
    made = r.call(node.target, *bias, r.filled(a, [rank - 1], 0), r.filled(b, [rank - 2], 0), **node.kwargs)
    return Value(made, (*a.dims[:-1], b.dims[-1]))
