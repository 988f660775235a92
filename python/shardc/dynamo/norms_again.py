"""Norms that the backward computes again from what their own gradient reads: x, mean and deviation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from operator import getitem

import torch
from torch.fx import Graph, Node
from torch.fx.node import Argument
from torch.utils.checkpoint import CheckpointPolicy

from shardc.frontend.nodes import node_at
from shardc.runtime.torch_private import OpOverload

aten = torch.ops.aten
LAYER, GROUP = aten.native_layer_norm.default, aten.native_group_norm.default
BATCH = (aten._native_batch_norm_legit_functional.default, aten._native_batch_norm_legit.no_stats)
_ACTIVATIONS = "elu gelu hardsigmoid hardswish hardtanh leaky_relu mish silu softplus"
UNTAGGED = frozenset(getattr(aten, f"{name}_backward").default for name in _ACTIVATIONS.split())
"""Pointwise ops without PyTorch's tag, some of them."""
SMALL = 8
"""How many times smaller other operands are than a result that is computed again."""


def read_norms_again(graph: Graph, is_call: Callable[[object], bool]) -> None:
    """Let pointwise ops of the backward read norms that are computed again, and what follows from them.

    Otherwise a norm's result, or that of the activation behind it, is written for the backward and read by
    it, beside the norm's input. ``graph``: the joint graph. ``is_call``: whether an op stays a call, which
    needs its operands in memory.
    """
    backward = set[Node]()
    for node in graph.nodes:
        if node.name.startswith("tangents") or not backward.isdisjoint(node.all_input_nodes):
            backward.add(node)
    again = _Again(graph, backward, is_call)
    for node in [node for node in graph.nodes if node in backward and again.is_pointwise(node)]:
        for operand in node.all_input_nodes:
            if operand not in backward and (made := again.of(operand, node)) is not None:
                node.replace_input_with(operand, made)


@dataclass
class _Again:
    graph: Graph
    backward: set[Node]
    is_call: Callable[[object], bool]
    made: dict[Node, Node | None] = field(default_factory=dict)

    def is_pointwise(self, node: Node) -> bool:
        target = node.target
        if not isinstance(target, OpOverload) or self.is_call(target):
            return False
        return torch.Tag.pointwise in target.tags or target in UNTAGGED

    def of(self, node: Node, before: Node) -> Node | None:
        """Return a node that computes ``node`` again, which is written before another one, if it may be."""
        if node not in self.made:
            self.made[node] = None
            users = [user for user in node.users if user in self.backward]
            if all(self.is_pointwise(user) for user in users):
                with self.graph.inserting_before(before):
                    self.made[node] = self._norm(node) if node.target is getitem else self._copy(node, before)
        return self.made[node]

    def _copy(self, node: Node, before: Node) -> Node | None:
        size = _elements(node)
        is_view = isinstance(node.target, OpOverload) and node.target.is_view
        if not size or not (is_view or self.is_pointwise(node)):
            return None
        large = [n for n in node.all_input_nodes if SMALL * _elements(n) > size]
        if len(large) != 1 or (source := self.of(large[0], before)) is None:
            return None
        copy = self.graph.node_copy(node, lambda n: source if n is large[0] else n)
        copy.meta["recompute"] = CheckpointPolicy.PREFER_RECOMPUTE
        return copy

    def _norm(self, node: Node) -> Node | None:
        norm = node_at(node)
        if node.args[1] != 0 or norm.target not in (LAYER, GROUP, *BATCH):
            return None
        results = {n.args[1]: n for n in norm.users if n.target is getitem}
        x, mean, rstd = node_at(norm), results.get(1), results.get(2)
        if mean is None or rstd is None or self.backward.isdisjoint(rstd.users):
            return None
        value = x.meta["val"]
        plain = all(isinstance(n, int) for n in value.shape) and value.is_contiguous()
        if not plain or value.dtype != mean.meta["val"].dtype:
            return None
        shape, channels = list(value.shape), [1, value.shape[1], *[1] * (value.ndim - 2)]
        if norm.target is LAYER:
            weights, inner, statistic, broadcast = norm.args[2:4], shape, None, None
        elif norm.target is GROUP:
            weights, broadcast = norm.args[1:3], channels
            inner, statistic = [*mean.meta["val"].shape, -1], [*mean.meta["val"].shape, 1]
        else:
            weights, inner, statistic, broadcast = norm.args[1:3], shape, channels, channels
        made = self._call(
            norm, aten.sub.Tensor, self._view(norm, x, inner), self._view(norm, mean, statistic)
        )
        made = self._call(norm, aten.mul.Tensor, made, self._view(norm, rstd, statistic))
        made = self._view(norm, made, shape)
        for target, weight in zip((aten.mul.Tensor, aten.add.Tensor), weights, strict=True):
            if isinstance(weight, Node):
                made = self._call(norm, target, made, self._view(norm, weight, broadcast))
        return made

    def _view(self, norm: Node, x: Node, shape: list[int] | None) -> Node:
        if shape is None or list(x.meta["val"].shape) == shape:
            return x
        return self._call(norm, aten.view.default, x, shape)

    def _call(self, norm: Node, target: OpOverload, *args: Argument) -> Node:
        node = self.graph.call_function(target, args)
        node.meta = {**norm.meta, "recompute": CheckpointPolicy.PREFER_RECOMPUTE}
        node.meta["val"] = target(*(a.meta["val"] if isinstance(a, Node) else a for a in args))
        return node


def _elements(node: Node) -> int:
    """Return a tensor's number of elements; 0 for what is no tensor, or has symbolic sizes."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not all(isinstance(n, int) for n in value.shape):
        return 0
    return prod(value.shape)
