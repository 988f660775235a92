"""Sums of sums in graphs: ``x.sum(-1).mean()`` becomes one sum of all elements, without a tensor between."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from shardc.frontend.importing.cleanup import replace_by
from shardc.frontend.nodes import node_at
from shardc.runtime.torch_private import OpOverload

aten = torch.ops.aten
_WHOLE = (aten.sum.default, aten.mean.default)
_FLOATS = (torch.float32, torch.float64)
"""Dtypes whose sums are not rounded between; integers would change their dtype."""


def join_sums(graph: Graph) -> None:
    """Let a sum or mean of all elements read what a sum over some dims reads, if nothing else reads that sum.

    A mean is then the mean of more elements, times their number for each element of the inner sum.
    """
    for node in list(graph.nodes):
        if node.target not in _WHOLE or node.kwargs:
            continue
        inner = node_at(node, 0)
        if inner.target is not aten.sum.dim_IntList or inner.kwargs or len(inner.users) != 1:
            continue
        source = node_at(inner, 0)
        before, after = source.meta["val"], inner.meta["val"]
        static = all(isinstance(n, int) for n in before.shape)
        if not static or before.dtype not in _FLOATS or 0 in before.shape:
            continue
        with graph.inserting_before(node):
            made = _alike(graph, node, node.target, source)
            if node.target is aten.mean.default:
                made = _alike(graph, node, aten.mul.Tensor, made, float(before.numel() // after.numel()))
        replace_by(node, made)
        graph.erase_node(inner)


def _alike(graph: Graph, node: Node, target: OpOverload, *args: Node | float) -> Node:
    """Return a new call whose result has the type of ``node``'s."""
    made = graph.call_function(target, args)
    made.meta = dict(node.meta)
    return made
