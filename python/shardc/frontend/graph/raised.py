"""Graphs that are rewritten by way of their import: a copy is imported, and what changed there is made of
nodes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch_mlir import ir

from shardc.dialects.aten.call import Call, CallReader, fill
from shardc.dialects.aten.schema import overload, parameters
from shardc.frontend.graph.aot_graph import import_values
from shardc.frontend.importing.insertion import insert_before
from shardc.frontend.importing.roundtrip import reference

Table = Mapping[Any, Callable[..., Any]]


class RewrittenGraph:
    """A graph of fake tensors, and its import, in which operators of ``table`` are decomposed where sizes are
    numbers. ``block`` is that of the import's function; what is written there, :meth:`take` brings back.

    Raises GraphNotCompiled.
    """

    def __init__(self, module: GraphModule, table: Table) -> None:
        self._graph, self._copies, self._parts = module.graph, dict[Node, Any](), dict[Node, Node]()
        copy = self._copied(table)
        imported, values = import_values(GraphModule(module, copy), "forward")
        self._module = imported.module
        self.block: ir.Block = imported.module.body.operations[0].regions[0].blocks[0]
        known = {
            node: values[key] for node, made in self._copies.items() if (key := reference(made)) in values
        }
        decomposed = {*self._parts.values()}
        self._results = {node: value for node, value in known.items() if _call_of(node) in decomposed}
        self._nodes = {value: node for node, value in known.items() if node not in self._results}
        parts = {reference(made): call for made, call in self._parts.items()}
        self._calls = {values[part]: call for part, call in parts.items()}
        self._reader = CallReader()
        tensors = (v for n in self._graph.nodes if isinstance(v := n.meta.get("val"), torch.Tensor))
        self._device, self._mode = next((v.device, v.fake_mode) for v in tensors if v.dim())  # type: ignore[attr-defined]

    def _copied(self, table: Table) -> Graph:
        copy = Graph()
        for node in self._graph.nodes:
            if node.op == "call_function" and node.target in table and _is_static(node):
                self._copies[node] = self._decomposed(copy, node, table[node.target])
            elif isinstance(results := self._copies.get(_call_of(node)), tuple):
                self._copies[node] = results[node.args[1]]
            elif node.op == "output":
                copy.output(torch.fx.map_arg(node.args[0], self._copies.__getitem__))
            else:
                self._copies[node] = copy.node_copy(node, self._copies.__getitem__)
        return copy

    def _decomposed(self, copy: Graph, node: Node, decomposition: Callable[..., Any]) -> Any:
        """The results of a call, of nodes in ``copy``."""
        args = [a.meta["val"] if isinstance(a, Node) else a for a in node.args]
        with next(a.fake_mode for a in args if isinstance(a, torch.Tensor)):  # type: ignore[attr-defined]
            traced = make_fx(lambda *given: _plain(decomposition(*given)))(*args).graph
        inputs = [self._copies[a] if isinstance(a, Node) else a for a in node.args]
        places = dict(zip(traced.find_nodes(op="placeholder"), inputs, strict=True))
        for part in traced.nodes:
            if part.op == "output":
                return torch.fx.map_arg(part.args[0], places.__getitem__)
            if part.op != "placeholder":
                made = places[part] = copy.node_copy(part, places.__getitem__)
                made.meta = {k: v for k, v in node.meta.items() if k != "tensor_meta"} | {
                    "val": part.meta["val"]
                }
                self._parts[made] = node
        raise AssertionError("a graph ends with its output")

    def take(self, taken: Mapping[ir.Value, ir.Value]) -> None:
        """Gives new values to the nodes that read old ones, and drops what nobody reads any more."""
        calls = {self._calls[old] for old in taken if old in self._calls}
        for node, value in self._results.items():
            if _call_of(node) in calls and node.users:
                node.replace_all_uses_with(self._node(value, node))
        for old, new in taken.items():
            if old in self._nodes:
                node = self._nodes[old]
                node.replace_all_uses_with(self._node(new, node))
        self._graph.eliminate_dead_code()

    def _node(self, value: ir.Value, like: Node) -> Node:
        """A value of the block in the graph, with the lines of ``like`` where it is new."""
        if value not in self._nodes:
            call = self._reader.read(value.owner.operation)
            made = self._call(call, [self._node(operand, like) for operand in call.operands], like)
            for number, result in enumerate(call.results):
                several = len(call.results) > 1
                self._nodes[result] = (
                    self._after([made], operator.getitem, (made, number), {}, like) if several else made
                )
        return self._nodes[value]

    def _call(self, call: Call, operands: list[Node], like: Node) -> Node:
        target, names = call.spec.target, parameters(call.spec.target)
        given = fill(call.spec.args, operands)
        args = {p: list(a) if isinstance(a, tuple) else a for p, a in zip(names, given, strict=True)}
        placed = {"Device": None if operands else self._device, "Layout": None}
        args = {p: next((v for kind, v in placed.items() if kind in p[1]), a) for p, a in args.items()}
        positional = tuple(a for (_, _, keyword), a in args.items() if not keyword)
        named = {name: a for (name, _, keyword), a in args.items() if keyword and a is not None}
        return self._after(operands, overload(target), positional, named, like)

    def _after(
        self,
        operands: list[Node],
        target: Callable[..., Any],
        args: tuple[Any, ...],
        named: dict[str, Any],
        like: Node,
    ) -> Node:
        """A new node behind the last of ``operands``."""
        last = max((*operands, *self._graph.find_nodes(op="placeholder")))
        return insert_before(last.next, target, args, named, self._mode, like)


def _is_static(node: Node) -> bool:
    values = [v for n in node.all_input_nodes if isinstance(v := n.meta["val"], torch.Tensor)]
    return all(isinstance(size, int) for value in values for size in value.shape)


def _plain(results: Any) -> Any:
    """Without the type that a tuple of results may have, which would be a call in a trace."""
    return tuple(results) if isinstance(results, tuple) else results


def _call_of(node: Node) -> Node:
    """The call that a node is, or is a result of."""
    return node.args[0] if node.target is operator.getitem else node  # type: ignore[return-value]
