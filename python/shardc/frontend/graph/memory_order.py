"""Tensors in another order of dims than the contiguous one, such as channels last: views of contiguous ones.

A kernel reads and writes contiguous tensors, and a graph's callers rely on the strides of its results. A
tensor with dense memory in another order is a contiguous one of the dims in that order, turned back by a
view. Kernels read and write the contiguous one, in place.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch.fx import Graph, Node

from shardc.dialects.kern.strides import DENSE
from shardc.frontend.nodes import listed, node_at, operator_of, stride_order
from shardc.runtime.torch_private import OpOverload

aten = torch.ops.aten
_PRODUCTS = frozenset(
    (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten.convolution.default)
)
"""Calls of libraries, which read any order, although kernels can compute them."""
_ELEMENTWISE = frozenset(
    (
        *(aten._to_copy.default, aten.leaky_relu_backward.default, aten._prelu_kernel.default),
        *(aten.hardswish_backward.default, aten.hardsigmoid_backward.default, aten.mish_backward.default),
        *(aten.softplus_backward.default, aten.hardtanh_backward.default, aten.elu_backward.default),
        *(aten.silu_backward.default, aten.log_sigmoid_backward.default, aten.sigmoid_backward.default),
    )
)
"""Ops whose tensors are broadcast to the result, in addition to those that have the tag of such ops."""


def order_values(graph: Graph, results: list[Node], lowered: Collection[str]) -> None:
    """Rewrite what kernels can read or write of the tensors in another order; ``results`` change.

    ``lowered``: targets of the calls that kernels can compute. Tensors with symbolic sizes stay.

    Pointwise ops compute their result in the order of its memory. What other ops with a lowering make is
    copied in that order, which costs nothing in the op's kernel. Inputs, and results of other calls, are
    viewed in the order of their memory; such views have ``DENSE`` in their ``meta``.
    """
    Orders(graph, lowered).run(results)


class Orders:
    """Rewriting of one graph. ``turned``: nodes that are views of a contiguous node in an order of dims."""

    def __init__(self, graph: Graph, lowered: Collection[str]) -> None:
        self._graph, self._lowered = graph, lowered
        self._turned: dict[Node, tuple[Node, list[int]]] = {}

    def run(self, results: list[Node]) -> None:
        """Rewrite all nodes, in order."""
        nodes = list(self._graph.nodes)
        orders = {node: order for node in nodes if (order := memory_order(node)) is not None}
        if not orders:
            return
        reads = self._read_by_kernels(nodes)
        became: dict[Node, Node] = {}
        for node, order in orders.items():
            if _is_view(node):
                continue
            if self._is_pointwise(node):
                new = self._computed(node, order)
                node.replace_all_uses_with(new)
                became[node] = new
                self._graph.erase_node(node)
            elif self._is_lowered(node) and _maker(node).target not in _PRODUCTS:
                new = self._copied(node, order)
                became[node] = new
            else:
                readers = [user for user in node.users if user in reads]
                if readers:
                    new = self._seen(node, readers[0], order)
                    for user in readers:
                        user.replace_input_with(node, new)
        results[:] = [became.get(node, node) for node in results]

    def _is_lowered(self, node: Node) -> bool:
        target = _maker(node).target
        return isinstance(target, OpOverload) and _name(target) in self._lowered

    def _is_pointwise(self, node: Node) -> bool:
        """Return whether the tensors of a call are broadcast to its result, whatever the order of dims."""
        target = node.target
        if not isinstance(target, OpOverload) or not self._is_lowered(node):
            return False
        if torch.Tag.pointwise not in target.tags and target not in _ELEMENTWISE:
            return False
        rank = node.meta["val"].dim()
        given = [a for a in node.all_input_nodes if isinstance(a.meta.get("val"), torch.Tensor)]
        plain = all(not isinstance(a, list | tuple | dict) for a in (*node.args, *node.kwargs.values()))
        return bool(given) and plain and all(a.meta["val"].dim() <= rank for a in given)

    def _read_by_kernels(self, nodes: list[Node]) -> set[Node]:
        """Return the calls that kernels can compute, and the views that such calls read."""
        found: set[Node] = set()
        for node in reversed(nodes):
            if _is_view(node):
                if any(user in found for user in node.users):
                    found.add(node)
            elif self._is_lowered(node) and _maker(node).target not in _PRODUCTS:
                found.add(node)
        return found

    def _computed(self, node: Node, order: list[int]) -> Node:
        """Return a pointwise op as a view of the same op on tensors with dims in ``order``."""
        args = [self._argument(a, node, order) if isinstance(a, Node) else a for a in node.args]
        given = {k: a for k, a in node.kwargs.items() if k != "memory_format"}
        kwargs = {k: self._argument(a, node, order) if isinstance(a, Node) else a for k, a in given.items()}
        with self._graph.inserting_before(node):
            made = self._graph.call_function(operator_of(node), tuple(args), kwargs)
        made.meta = _meta(node, _contiguous(node.meta["val"].permute(order)))
        return self._back(made, node, order)

    def _argument(self, argument: Node, node: Node, order: list[int]) -> Node:
        """Return an argument of a pointwise op with all dims of its result, in ``order``."""
        value = argument.meta["val"]
        if not isinstance(value, torch.Tensor) or not value.dim():
            return argument
        if argument in self._turned and self._turned[argument][1] == order:
            return self._turned[argument][0]
        with self._graph.inserting_before(node):
            for _ in range(len(order) - value.dim()):
                value = value.unsqueeze(0)
                argument = self._call(argument, node, aten.unsqueeze.default, value, 0)
            return self._call(argument, node, aten.permute.default, value.permute(order), order)

    def _copied(self, node: Node, order: list[int]) -> Node:
        """Return a view of a copy of ``node`` in ``order``, which replaces it."""
        readers = list(node.users)
        with self._graph.inserting_after(node):
            turned = self._call(node, node, aten.permute.default, node.meta["val"].permute(order), order)
        with self._graph.inserting_after(turned):
            value = _contiguous(node.meta["val"].permute(order))
            copy = self._call(turned, node, aten.clone.default, value)
        new = self._back(copy, node, order)
        for user in readers:
            user.replace_input_with(node, new)
        return new

    def _seen(self, node: Node, reader: Node, order: list[int]) -> Node:
        """Return ``node`` as a view of a contiguous view, which have the source lines of ``reader``."""
        after = node
        while after.next.op == "placeholder":
            after = after.next
        with self._graph.inserting_after(after):
            dense = self._call(node, reader, aten.permute.default, node.meta["val"].permute(order), order)
        dense.meta[DENSE] = True
        return self._back(dense, reader, order)

    def _back(self, made: Node, like: Node, order: list[int]) -> Node:
        inverse = [order.index(d) for d in range(len(order))]
        with self._graph.inserting_after(made):
            value = made.meta["val"].permute(inverse)
            new = self._call(made, like, aten.permute.default, value, inverse)
        self._turned[new] = made, order
        return new

    def _call(
        self, of: Node, like: Node, target: OpOverload, value: torch.Tensor, *more: int | list[int]
    ) -> Node:
        made = self._graph.call_function(target, (of, *more))
        made.meta = _meta(like, value)
        return made


def memory_order(node: Node) -> list[int] | None:
    """Return the dims of a static tensor that is dense in another order, the most major first, else None."""
    value = node.meta.get("val")
    if node.op == "output" or not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    if any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride())) or value.is_contiguous():
        return None
    order = list(stride_order(value))
    back = [order.index(d) for d in range(len(order))]
    return order if _contiguous(value.permute(order)).permute(back).stride() == value.stride() else None


def _contiguous(value: torch.Tensor) -> torch.Tensor:
    return value.new_empty(value.shape)


def _maker(node: Node) -> Node:
    """Return the call that makes a node's tensor: the node, or the one of whose results it is one."""
    is_one = node.op == "call_function" and not isinstance(node.target, OpOverload) and node.args
    return node_at(node) if is_one and listed(node_at(node).meta.get("val")) else node


def _is_view(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target.is_view


def _meta(like: Node, value: torch.Tensor) -> dict[str, object]:
    kept = {key: entry for key, entry in like.meta.items() if key not in ("tensor_meta", DENSE)}
    return {**kept, "val": value}


def _name(target: OpOverload) -> str:
    name, _, overload = target.name().removeprefix("aten::").partition(".")
    return f"aten.{name}.{overload}".removesuffix(".")
