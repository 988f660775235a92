"""Pointwise calls on the parts of a tensor: ``sigmoid(x[0])``, ``sigmoid(x[1])`` become one call on ``x``.

Loops over time make such calls. Each would be a kernel of a few elements, while kernels read the parts of one
tensor in place.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node, map_arg

from shardc.frontend.nodes import node_at, operator_of
from shardc.runtime.torch_private import OpOverload

aten = torch.ops.aten
SELECT = aten.select.int
_VIEWS = {
    *(SELECT, aten.slice.Tensor, aten.unsqueeze.default, aten.squeeze.dim, aten.expand.default),
    *(aten.permute.default, aten.transpose.int, aten.t.default, aten.alias.default, aten.detach.default),
}
"""Views of tensors with any strides."""
FEWEST_PARTS = 4
"""Least number of parts, which are also at least half of the tensor."""
MOST_ELEMENTS = 4096
"""Most elements of a part. Kernels that read larger ones compute them, rather than read and write them."""


def join_parts(graph: Graph) -> None:
    """Replace pointwise calls on selections of the same tensors by selections of one call's result."""
    left = list(graph.nodes)
    while left:
        found: dict[Hashable, list[Node]] = {}
        for node in left:
            if _is_of_parts(node):
                dim, sources = _sources(node)
                found.setdefault((node.target, dim, *map(repr, sources)), []).append(node)
        order = {node: number for number, node in enumerate(graph.nodes)}
        made = [_join(graph, calls, order) for calls in found.values() if _is_worth_it(calls)]
        left = list(dict.fromkeys(user for parts in made for part in parts for user in part.users))


def _is_of_parts(node: Node) -> bool:
    """Return whether a call is pointwise, and all its tensors are the same part of tensors of one shape."""
    if not isinstance(node.target, OpOverload) or torch.Tag.pointwise not in node.target.tags:
        return False
    value, read = node.meta.get("val"), node.all_input_nodes
    if not isinstance(value, Tensor) or not read or any(n.target is not SELECT or n.kwargs for n in read):
        return False
    wholes = [node_at(n).meta["val"] for n in read]
    places = {(tuple(whole.shape), *n.args[1:]) for n, whole in zip(read, wholes, strict=True)}
    known = all(isinstance(size, int) for whole in wholes for size in whole.shape)
    if len(places) != 1 or not known or value.numel() > MOST_ELEMENTS:
        return False
    return value.shape == read[0].meta["val"].shape and _may_have_strides(node)


def _may_have_strides(node: Node) -> bool:
    """Return whether readers of a value, also through views, take it with any strides."""
    for user in node.users:
        is_view = isinstance(user.target, OpOverload) and user.target.is_view
        if user.op == "output" or (is_view and (user.target not in _VIEWS or not _may_have_strides(user))):
            return False
    return True


def _sources(call: Node) -> tuple[int, tuple[Any, Any]]:
    """Return the dim of the parts that ``call`` reads, and its arguments with whole tensors for parts."""
    part = call.all_input_nodes[0]
    dim = part.args[1]
    assert isinstance(dim, int)
    return dim % node_at(part).meta["val"].dim(), map_arg((call.args, call.kwargs), node_at)


def _index(call: Node) -> int:
    part = call.all_input_nodes[0]
    (dim, _), index = _sources(call), part.args[2]
    assert isinstance(index, int)
    return index % node_at(part).meta["val"].shape[dim]


def _is_worth_it(calls: list[Node]) -> bool:
    (dim, _), count = _sources(calls[0]), len(set(map(_index, calls)))
    return count >= FEWEST_PARTS and 2 * count >= node_at(calls[0].all_input_nodes[0]).meta["val"].shape[dim]


def _join(graph: Graph, calls: list[Node], order: dict[Node, int]) -> list[Node]:
    """Replace ``calls`` by parts of one call's result; return these."""
    dim, (args, kwargs) = _sources(calls[0])
    last = max((node_at(part) for part in calls[0].all_input_nodes), key=order.__getitem__)
    if last.op == "placeholder":
        last = next(node for node in reversed(graph.nodes) if node.op == "placeholder")
    with graph.inserting_after(last):
        whole = _called(graph, calls[0], args, kwargs)
    parts: dict[int, Node] = {}
    for call in calls:
        index = _index(call)
        if index not in parts:
            with graph.inserting_before(call):
                parts[index] = _called(graph, call, (whole, dim, index), {}, SELECT)
        call.replace_all_uses_with(parts[index])
        graph.erase_node(call)
    for part in parts.values():
        _see_again(part)
    return list(parts.values())


def _called(graph: Graph, like: Node, args: Any, kwargs: Any, target: OpOverload | None = None) -> Node:
    """Return a new call in the place in the program that ``like`` has."""
    made = graph.call_function(target or operator_of(like), args, kwargs)
    made.meta = dict(like.meta)
    _note_value(made)
    return made


def _see_again(part: Node) -> None:
    """Note the new strides of the views of ``part``."""
    for user in part.users:
        if user.target in _VIEWS:
            _note_value(user)
            _see_again(user)


def _note_value(node: Node) -> None:
    (args, kwargs), read = map_arg((node.args, node.kwargs), lambda n: n.meta["val"]), node.all_input_nodes
    with read[0].meta["val"].fake_mode:
        node.meta["val"] = operator_of(node)(*args, **kwargs)
    node.meta.pop("tensor_meta", None)
