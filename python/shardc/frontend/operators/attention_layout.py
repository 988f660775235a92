"""How results of attention lie in traced graphs: said by a copy, which programs do without."""

from __future__ import annotations

import operator
from collections.abc import Iterator

import torch
from torch.fx import Graph, Node

from shardc.frontend.nodes import node_at

aten = torch.ops.aten
_ATTENTION = "shardc.attention.default"
"""By name: the op is defined where it is first called."""


def laid_out(out: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """``out`` as it would be with its dims in this order in memory, the most major first."""
    if order == tuple(range(out.dim())):
        return out
    return out.permute(order).contiguous().permute([order.index(d) for d in range(out.dim())])


def layouts(graph: Graph) -> Iterator[Node]:
    """The copies of :func:`laid_out`, of results of ``shardc::attention`` that nobody else reads."""
    for node in graph.find_nodes(op="call_function", target=aten.clone.default):
        turned = node_at(node)
        out = node_at(turned) if turned.target is aten.permute.default else turned
        if out.target is not operator.getitem or str(node_at(out).target) != _ATTENTION:
            continue
        alone = list(out.users) == [turned] and list(turned.users) == [node] and out.args[1] == 0
        if alone and node.kwargs.get("memory_format") == torch.contiguous_format:
            yield node


def drop_layouts(graph: Graph) -> None:
    """Drops the copies: tensors of the IR have no strides, results lie as the values of nodes say."""
    for copy in list(layouts(graph)):
        turned = node_at(copy)
        turned.meta["val"] = copy.meta["val"]
        copy.replace_all_uses_with(turned)
        graph.erase_node(copy)
