"""Typed access to FX graphs: inputs of a graph, and arguments, operators and values of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import Argument

from shardc.runtime.torch_private import OpOverload, schema_of

UNBACKED_HINT = 64
"""Assumed value of a size that the traced call does not show, such as the number of true elements."""


def placeholders(graph: Graph) -> list[Node]:
    """Return the inputs of a graph, in order."""
    return list(graph.find_nodes(op="placeholder"))


def calls(graph: Graph) -> list[Node]:
    """Return the nodes that call a function or operator, in order."""
    return [node for node in graph.nodes if node.op == "call_function"]


def outputs(graph: Graph) -> Sequence[Argument]:
    """Return the outputs of a graph."""
    return list_at(graph.output_node(), 0)


def node_at(node: Node, position: int = 0) -> Node:
    """Return an argument that is a node."""
    found = node.args[position]
    assert isinstance(found, Node), f"argument {position} of {node} is no node"
    return found


def list_at(node: Node, position: int) -> Sequence[Argument]:
    """Return an argument that is a list."""
    found = node.args[position]
    assert isinstance(found, list | tuple), f"argument {position} of {node} is no list"
    return found


def dim_at(node: Node, position: int, rank: int) -> int:
    """Return an argument that is one of ``rank`` dims, counted from the front; 0 if it is omitted."""
    dim = node.args[position] if position < len(node.args) else 0
    assert isinstance(dim, int), f"argument {position} of {node} is no dim"
    return dim % rank


def operator_of(node: Node) -> OpOverload:
    """Return the operator that a node calls."""
    assert isinstance(node.target, OpOverload), f"{node} calls no operator"
    return node.target


def arguments(node: Node) -> Iterator[tuple[torch.Argument, Any]]:
    """Yield the parameters of a node's operator, each with its argument or default."""
    for position, declared in enumerate(schema_of(operator_of(node)).arguments):
        given = node.args[position : position + 1] or (
            node.kwargs.get(declared.name, declared.default_value),
        )
        yield declared, given[0]


def listed(value: object) -> Sequence[Any]:
    """Return a node's values as a sequence; a single value becomes a list of one."""
    return value if isinstance(value, tuple | list) else (value,)


def values_of(node: Node) -> Iterator[torch.Tensor]:
    """Yield the fake tensors that a node makes."""
    return (value for value in listed(node.meta.get("val")) if isinstance(value, torch.Tensor))


def viewed(node: Node) -> Node:
    """Return the node whose memory a chain of views shows."""
    while isinstance(node.target, OpOverload) and any(r.alias_info for r in schema_of(node.target).returns):
        node = node_at(node)
    return node


def history(node: Node) -> Iterator[Node]:
    """Yield a node and everything that it is computed from, each once."""
    seen, stack = {node}, [node]
    while stack:
        current = stack.pop()
        yield current
        new = set(current.all_input_nodes) - seen
        seen |= new
        stack += new


def final_writes(graph: Graph) -> list[Node]:
    """Return the calls by which AOTAutograd gives inputs their new values, the last first.

    Nothing reads these inputs later.
    """
    found: list[Node] = []
    read: set[Node] = set()
    for node in reversed(graph.nodes):
        if _is_write(node) and node_at(node) not in read:
            found.append(node)
            read.add(node_at(node, 1))
        elif node.op != "output":
            read.update(node.all_input_nodes)
    return found


def _is_write(node: Node) -> bool:
    if node.target is not torch.ops.aten.copy_.default or len(node.args) != 2:
        return False
    if any(user.op != "output" for user in node.users):  # the call returns the input itself
        return False
    into, value = node.args
    return isinstance(into, Node) and into.op == "placeholder" and isinstance(value, Node)


def written_inputs(graph: Graph) -> list[int]:
    """Return the numbers of the inputs that :func:`final_writes` writes to."""
    into = {node_at(node) for node in final_writes(graph)}
    return [number for number, node in enumerate(placeholders(graph)) if node in into]


def stride_order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the dims of a tensor, largest strides first, without fixing symbolic sizes."""
    strides = tensor.stride()
    hints = [n if isinstance(n, int) else n.node.shape_env.optimization_hint(n.node.expr) for n in strides]
    return tuple(sorted(range(tensor.dim()), key=lambda d: -hints[d]))
