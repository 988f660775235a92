"""A graph as text, which its trace and its program are found by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node


def calls(graph: GraphModule) -> Iterator[tuple[str, ...]]:
    """Each node as text: operation, name of an input, what is called with what, and the user's lines."""
    numbers: dict[Node, int] = {}
    for node in graph.graph.nodes:
        numbers[node] = len(numbers)
        arguments = torch.fx.map_arg((node.args, node.kwargs), lambda n: _Number(numbers[n]))
        name = node.name if node.op in ("placeholder", "get_attr") else ""
        yield node.op, name, _called(node.target), repr(arguments), node.meta.get("stack_trace") or ""


def _called(target: Any) -> str:
    """Functions by their names: their texts have addresses."""
    name = getattr(target, "__qualname__", None)
    return str(target) if name is None else f"{target.__module__}.{name}"


class _Number(int):
    """A node by its number, which no integer argument is printed like."""

    def __repr__(self) -> str:
        return f"%{int(self)}"
