"""Results in another order of dims than the contiguous one, as views of contiguous copies.

A graph's callers rely on the strides of its results. A kernel writes contiguous tensors, so an op that makes
such a result would stay a call. As a copy in the order of its memory, turned back by a view, it is part of a
kernel, which writes it in this order.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch.fx import Graph, Node

from shardc.frontend.nodes import stride_order
from shardc.runtime.torch_private import OpOverload

aten = torch.ops.aten
_MOVES = frozenset((aten.flip.default, aten.roll.default, aten.clone.default))
"""Ops that keep the order of dims, and that kernels read through."""


def order_results(graph: Graph, results: list[Node], lowered: Collection[str]) -> None:
    """Replace results of pointwise ops that have dense memory in another order of dims; ``results`` change.

    ``lowered``: targets of the calls that kernels can compute.

    Results that other nodes of the graph read stay, as do those with symbolic sizes, and those computed from
    large tensors in another order, of which kernels would read copies.
    """
    for number, node in enumerate(results):
        order = _order(node, lowered)
        if order is None or results.count(node) > 1:
            continue
        inverse = [order.index(d) for d in range(len(order))]
        value = node.meta["val"]
        with graph.inserting_after(node):
            turned = _call(graph, node, aten.permute.default, value.permute(order), node, order)
        with graph.inserting_after(turned):
            copy = _call(graph, node, aten.clone.default, value.permute(order).clone(), turned)
        with graph.inserting_after(copy):
            results[number] = _call(
                graph, node, aten.permute.default, copy.meta["val"].permute(inverse), copy, inverse
            )


def _order(node: Node, lowered: Collection[str]) -> list[int] | None:
    """Return the dims of a result in the order of its memory; None if it stays as it is."""
    value, target = node.meta.get("val"), node.target
    if not isinstance(value, torch.Tensor) or not isinstance(target, OpOverload):
        return None
    if any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride())) or value.is_contiguous():
        return None
    if torch.Tag.pointwise not in target.tags or any(user.op != "output" for user in node.users):
        return None
    order = list(stride_order(value))
    may = value.permute(order).is_contiguous() and _name(target) in lowered and _reads_contiguous(node)
    return order if may else None


def _reads_contiguous(result: Node) -> bool:
    """Return whether the large tensors that views and pointwise ops compute a result from are contiguous."""
    size = result.meta["val"].numel()
    left, seen = [result], set[Node]()
    while left:
        node = left.pop()
        for source in set(node.all_input_nodes) - seen:
            seen.add(source)
            value, target = source.meta.get("val"), source.target
            if not isinstance(value, torch.Tensor):
                return False
            is_op = isinstance(target, OpOverload)
            passes_on = is_op and (target.is_view or target in _MOVES or torch.Tag.pointwise in target.tags)
            if passes_on or (is_op and value.numel() < size):
                left.append(source)
            elif value.numel() >= size and not value.is_contiguous():
                return False
    return True


def _name(target: OpOverload) -> str:
    name, _, overload = target.name().removeprefix("aten::").partition(".")
    return f"aten.{name}.{overload}".removesuffix(".")


def _call(graph: Graph, like: Node, target: OpOverload, value: torch.Tensor, *args: Node | list[int]) -> Node:
    made = graph.call_function(target, args)
    made.meta = {key: entry for key, entry in like.meta.items() if key != "tensor_meta"} | {"val": value}
    return made
