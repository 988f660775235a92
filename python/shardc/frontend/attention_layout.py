"""How results of attention lie in traced graphs, without the copies that say so."""

from __future__ import annotations

import operator

import torch
from torch.fx import GraphModule, Node

aten = torch.ops.aten
_ATTENTION = "shardc.attention.default"
"""By name: the op is defined where it is first called."""


def laid_out(out: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """``out`` as it would be with its dims in this order in memory, the most major first. Traced, it is three calls."""
    if order == tuple(range(out.dim())):
        return out
    return out.permute(order).contiguous().permute([order.index(d) for d in range(out.dim())])


def drop_layouts(module: GraphModule) -> None:
    """Has results of ``shardc::attention`` lie as :func:`laid_out` made of them: values say it, and no call is needed."""
    graph = module.graph
    found = [(node, out) for node in graph.nodes if (out := _of_attention(node)) is not None]
    for node, out in found:
        out.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(out)
        copy = node.args[0]
        for dead in (node, copy, copy.args[0]):  # type: ignore[union-attr]
            graph.erase_node(dead)
    if found:
        module.recompile()


def _of_attention(node: Node) -> Node | None:
    """The attention's result of which ``node`` is the last call of :func:`laid_out`, if nobody else reads what is
    between.
    """
    chain = [node]
    for target in (aten.permute.default, aten.clone.default, aten.permute.default, operator.getitem):
        if chain[-1].target is not target:
            return None
        chain.append(chain[-1].args[0])  # type: ignore[arg-type]
    _, copy, turned, out, attention = chain
    if str(attention.target) != _ATTENTION or out.args[1] != 0:
        return None
    there, back = turned.args[1], node.args[1]
    if [there[d] for d in back] != list(range(len(there))):  # type: ignore[index, union-attr, arg-type]
        return None
    alone = all(list(value.users) == [user] for value, user in ((out, turned), (turned, copy), (copy, node)))
    return out if alone and copy.kwargs.get("memory_format") == torch.contiguous_format else None
