"""Layout of attention results in traced graphs, expressed by a copy that programs do not execute."""

from __future__ import annotations

import operator
from collections.abc import Iterator

import torch
from torch.fx import Graph, Node

from shardc.frontend.nodes import node_at

aten = torch.ops.aten
_ATTENTION = "shardc.attention.default"
"""Name of the op, which is defined only when it is first called."""


def laid_out(out: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Return ``out`` with its dims in this memory order, the most major first."""
    if order == tuple(range(out.dim())):
        return out
    return out.permute(order).contiguous().permute([order.index(d) for d in range(out.dim())])


def layouts(graph: Graph) -> Iterator[Node]:
    """Yield the copies of :func:`laid_out` on results of ``shardc::attention`` without other readers."""
    for node in graph.find_nodes(op="call_function", target=aten.clone.default):
        turned = node_at(node)
        out = node_at(turned) if turned.target is aten.permute.default else turned
        if out.target is not operator.getitem or str(node_at(out).target) != _ATTENTION:
            continue
        alone = list(out.users) == [turned] and list(turned.users) == [node] and out.args[1] == 0
        if alone and node.kwargs.get("memory_format") == torch.contiguous_format:
            yield node


def drop_layouts(graph: Graph) -> None:
    """Drop the copies: IR tensors have no strides, and results take the layout of their nodes' values."""
    for copy in list(layouts(graph)):
        turned = node_at(copy)
        turned.meta["val"] = copy.meta["val"]
        copy.replace_all_uses_with(turned)
        graph.erase_node(copy)
