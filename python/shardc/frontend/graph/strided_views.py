"""Replaces ``as_strided`` of a whole dense tensor, which addresses memory, by views of its elements.

Average pooling to one pixel makes it for tensors with channels last, and AOTAutograd for gradients of views
that it makes again. If tensor and view both hold each element of the same memory once, the view is a
permutation of the tensor's dims to the order of memory, a reshape, and a permutation to the view's dims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.node import Argument

from shardc.frontend.importing.insertion import insert_before
from shardc.frontend.nodes import calls, list_at, node_at

aten = torch.ops.aten


def drop_strided_views(module: GraphModule) -> None:
    """Replace each such call, and each ``as_strided_scatter`` that writes all elements, in ``module``."""
    for node in calls(module.graph):
        if node.target is aten.as_strided.default:
            _replace(node, node_at(node), _layout(node, 1), _own(node_at(node)))
        elif node.target is aten.as_strided_scatter.default:
            _replace(node, node_at(node, 1), _own(node), _layout(node, 2))


@dataclass(frozen=True)
class _Layout:
    """Sizes, strides and offset of a view of memory; without an offset, it is the memory's own.

    ``size`` and ``stride`` are numbers, or nodes of the graph that make symbolic ones.
    """

    size: Sequence[Argument]
    stride: Sequence[Argument]
    offset: Argument = None

    @property
    def order(self) -> list[int] | None:
        """The dims in the order of memory, if each element is known to have its own place, without gaps."""
        size, stride = _numbers(self.size), _numbers(self.stride)
        is_one = [statically_known_true(n == 1) for n in size]
        order = sorted(range(len(size)), key=lambda d: (is_one[d], -_hint(stride[d])))
        long, expected = [d for d in order if not is_one[d]], 1
        for d in reversed(long):
            if not statically_known_true(stride[d] == expected):
                return None
            expected *= size[d]
        return list(range(len(size))) if long == sorted(long) else order


def _layout(node: Node, first: int) -> _Layout:
    return _Layout(list_at(node, first), list_at(node, first + 1), *node.args[first + 2 :])


def _own(node: Node) -> _Layout:
    value: torch.Tensor = node.meta["val"]
    return _Layout(value.shape, value.stride(), value.storage_offset())


def _numbers(values: Sequence[Argument]) -> list[Any]:
    return [value.meta["val"] if isinstance(value, Node) else value for value in values]


def _hint(size: int | torch.SymInt) -> int:
    return size if isinstance(size, int) else size.node.shape_env.optimization_hint(size.node.expr)


def _replace(node: Node, source: Node, new: _Layout, old: _Layout) -> None:
    """Let ``node`` have the elements of ``source``, which lie in memory by the old layout, in the new one."""
    before, after = old.order, new.order
    if before is None or after is None or (None not in (old.offset, new.offset) and old.offset != new.offset):
        return
    if not statically_known_true(prod(_numbers(new.size)) == prod(_numbers(old.size))):
        return
    size = [new.size[d] for d in after]
    size = [-1 if isinstance(given, torch.SymInt) else given for given in size]
    if size.count(-1) > 1:  # a call takes numbers and nodes, and can leave one size open
        return
    made = source
    if before != sorted(before):
        made = insert_before(node, aten.permute.default, (made, before))
    if not made.meta["val"].is_contiguous():  # what a scatter writes may lie in memory in any order
        made = insert_before(node, aten.clone.default, (made,), {"memory_format": torch.contiguous_format})
    made = insert_before(node, aten.view.default, (made, size))
    if after != sorted(after):
        made = insert_before(node, aten.permute.default, (made, [after.index(d) for d in range(len(after))]))
    made.meta["val"] = node.meta["val"]  # dims of one element keep their strides
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)
