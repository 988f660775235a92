"""Rewrites a graph through its import: changes in the imported copy become new nodes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import Argument, Target
from torch_mlir import ir

from shardc.dialects.aten.call import Call, CallReader, fill
from shardc.dialects.aten.schema import overload, parameters
from shardc.frontend.graph.aot_graph import import_values
from shardc.frontend.importing.insertion import insert_before
from shardc.frontend.importing.roundtrip import Result, reference, result_of
from shardc.frontend.nodes import node_at, operator_of, placeholders
from shardc.frontend.operators import Table
from shardc.runtime.torch_private import FakeTensor


class RewrittenGraph:
    """A graph of fake tensors with its import, in which ``table`` decomposes operators of fixed sizes.

    ``block`` is the body of the imported function; :meth:`take` brings changes of it back. Raises
    GraphNotCompiled.
    """

    def __init__(self, module: GraphModule, table: Table) -> None:
        self._graph, self._copies, self._parts = module.graph, dict[Node, Argument](), dict[Node, Node]()
        copy = self._copied(table)
        imported, values = import_values(GraphModule(module, copy), "forward")
        self._module = imported.module
        self.block: ir.Block = imported.module.body.operations[0].regions[0].blocks[0]
        keys = {node: reference(made) for node, made in self._copies.items()}
        known = {node: values[key] for node, key in keys.items() if isinstance(key, Result) and key in values}
        decomposed = {*self._parts.values()}
        self._results = {node: value for node, value in known.items() if _call_of(node) in decomposed}
        self._nodes = {value: node for node, value in known.items() if node not in self._results}
        self._calls = {values[result_of(made)]: call for made, call in self._parts.items()}
        self._reader = CallReader()
        tensors = (v for n in self._graph.nodes if isinstance(v := n.meta.get("val"), FakeTensor))
        tensor = next(v for v in tensors if v.dim())
        self._device, self._mode = tensor.device, tensor.fake_mode

    def _copied(self, table: Table) -> Graph:
        copy = Graph()
        for node in self._graph.nodes:
            if node.op == "call_function" and node.target in table and _is_static(node):
                self._copies[node] = self._decomposed(copy, node, table[operator_of(node)])
            elif isinstance(results := self._copies.get(_call_of(node)), tuple):
                self._copies[node] = results[node.args[1]]
            elif node.op == "output":
                copy.output(torch.fx.map_arg(node.args[0], self._copies.__getitem__))
            else:
                self._copies[node] = copy.node_copy(node, self._copies.__getitem__)
        return copy

    def _decomposed(self, copy: Graph, node: Node, decomposition: Callable[..., object]) -> Argument:
        """Return a decomposed call's results as nodes of ``copy``."""
        args = [a.meta["val"] if isinstance(a, Node) else a for a in node.args]
        with next(a.fake_mode for a in args if isinstance(a, FakeTensor)):
            traced = make_fx(lambda *given: _plain(decomposition(*given)))(*args).graph
        inputs = [self._copies[a] if isinstance(a, Node) else a for a in node.args]
        places = dict(zip(placeholders(traced), inputs, strict=True))
        for part in traced.nodes:
            if part.op == "output":
                return torch.fx.map_arg(part.args[0], places.__getitem__)
            if part.op != "placeholder":
                made = places[part] = copy.node_copy(part, places.__getitem__)
                meta = {k: v for k, v in node.meta.items() if k != "tensor_meta"}
                made.meta = meta | {"val": part.meta["val"]}
                self._parts[made] = node
        raise AssertionError("a graph ends with its output")

    def take(self, taken: Mapping[ir.Value, ir.Value]) -> None:
        """Replace old values by new ones in the graph's nodes and remove dead nodes."""
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
        """Return the node of a value of the block; a new node gets the source lines of ``like``."""
        if value not in self._nodes:
            call = self._reader.read(value.owner.operation)
            made = self._call(call, [self._node(operand, like) for operand in call.operands], like)
            for number, result in enumerate(call.results):
                several = len(call.results) > 1
                part = self._after([made], operator.getitem, (made, number), {}, like) if several else made
                self._nodes[result] = part
        return self._nodes[value]

    def _call(self, call: Call, operands: list[Node], like: Node) -> Node:
        target, given = call.spec.target, fill(call.spec.args, operands)
        placed = {"Device": None if operands else self._device, "Layout": None}
        positional: list[Argument] = []
        named: dict[str, Argument] = {}
        for (name, kind, is_keyword), arg in zip(parameters(target), given, strict=True):
            arg = next((v for part, v in placed.items() if part in kind), arg)
            if not is_keyword:
                positional.append(list(arg) if isinstance(arg, tuple) else arg)
            elif arg is not None:
                named[name] = list(arg) if isinstance(arg, tuple) else arg
        return self._after(operands, overload(target), tuple(positional), named, like)

    def _after(
        self, operands: list[Node], target: Target, args: tuple, named: dict[str, Argument], like: Node
    ) -> Node:
        """Insert a node after the last of ``operands``."""
        last = max((*operands, *placeholders(self._graph)))
        return insert_before(last.next, target, args, named, self._mode, like)


def _is_static(node: Node) -> bool:
    values = [v for n in node.all_input_nodes if isinstance(v := n.meta["val"], torch.Tensor)]
    return all(isinstance(size, int) for value in values for size in value.shape)


def _plain(results: object) -> object:
    """Convert a named tuple of results to a plain one, since its type would become a call in the trace."""
    return tuple(results) if isinstance(results, tuple) else results


def _call_of(node: Node) -> Node:
    """Return the call that a node is, or is a result of."""
    return node_at(node) if node.target is operator.getitem else node
