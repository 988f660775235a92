"""``aten.copy`` in graphs: a copy of its first operand, into which the second one is written."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from shardc.frontend.importing.cleanup import replace_by
from shardc.frontend.nodes import node_at

aten = torch.ops.aten
_WRITERS = (aten.slice_scatter.default, aten.select_scatter.default)


def drop_copies(graph: Graph) -> None:
    """Drop a ``copy`` of a tensor with its own type that is only written to a part of another one.

    Such copies stand in traces of ``x[:, 1:] = y``.
    """
    for node in list(graph.nodes):
        if node.target is not aten.copy.default or not node.users:  # a written input's value has none
            continue
        if all(_is_written_by(user, node) for user in node.users):
            source = node_at(node, 1)
            if _is_same_type(node.meta["val"], source.meta["val"]):
                replace_by(node, source)


def _is_written_by(user: Node, node: Node) -> bool:
    return user.target in _WRITERS and user.args[1] is node and user.args[0] is not node


def _is_same_type(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return True if two tensors are known to have one type, without fixing symbolic sizes."""
    if x.dtype != y.dtype or x.dim() != y.dim():
        return False
    return all(statically_known_true(n == m) for n, m in zip(x.shape, y.shape, strict=True))
