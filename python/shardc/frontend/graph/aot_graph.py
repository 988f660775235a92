"""Imports one graph of AOTAutograd (a forward, a backward or an inference) as a level-1 module.

Nothing is simplified or decomposed, because callers of the graph rely on its strides. The importer may
rewrite calls, so each call of the module is compared with the graph's.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.node import Argument
from torch.multiprocessing.reductions import StorageWeakRef
from torch_mlir import ir

from shardc.diagnostics.dynamo import GraphNotCompiled
from shardc.diagnostics.frontend import UnsupportedOp
from shardc.dialects.aten.python_numbers import overload_of
from shardc.dialects.aten.types import Order
from shardc.dialects.context import new_context
from shardc.dialects.kern.strides import DENSE, note_strides
from shardc.frontend.graph.copies import drop_copies
from shardc.frontend.graph.graph_check import check_graph
from shardc.frontend.graph.large_windows import separate_maxima
from shardc.frontend.graph.memory_order import order_values
from shardc.frontend.graph.nested_sums import join_sums
from shardc.frontend.graph.parts import join_parts
from shardc.frontend.importing.cleanup import replace_by
from shardc.frontend.importing.graph_io import StepGraph
from shardc.frontend.importing.insertion import scalar_overload
from shardc.frontend.importing.mlir_import import import_step
from shardc.frontend.importing.recorder import FRAMES, PHASE, UNKNOWN, frames_of
from shardc.frontend.importing.roundtrip import ExpectedCall, Result, check_calls, expected_calls
from shardc.frontend.nodes import (
    calls,
    final_writes,
    list_at,
    node_at,
    operator_of,
    outputs,
    placeholders,
    stride_order,
    values_of,
)
from shardc.frontend.operators.attention_layout import drop_layouts
from shardc.frontend.step.spec import TensorSpec
from shardc.runtime.torch_private import LazyGraphModule, OpOverload, pytree, schema_of

aten = torch.ops.aten
_SAME: dict[object, OpOverload] = {
    aten.lift_fresh_copy.default: aten.clone.default,
    aten._efficientzerotensor.default: aten.zeros.default,  # it has no memory, which kernels would read
    aten._neg_view.default: aten.neg.default,  # it is the negative of its memory
    aten._unsafe_index_put.default: aten.index_put.default,  # this also checks its indices
}
_OF_THE_TENSORS_DTYPE = (
    aten.index_add.default,
    aten.index_fill.int_Scalar,
    aten._unsafe_masked_index.default,
)
"""Ops whose scalars take a tensor's dtype. True is passed as 1, since the importer rejects bools there."""
_ALIASES = (aten.detach.default, aten.alias.default)


@dataclass
class ImportedGraph:
    """A graph as a module with one function ``@step``.

    The function takes the graph's inputs and then its constants (``constants_of`` in ``graph_check.py``).

    Attributes:
        outputs: For each output of the graph, the number of a result of the function; None for a None output.
        strides: For each result, its memory layout in the graph; None for contiguous and for written inputs.
            An order without dims stands for symbolic strides that are no order of dims.
        writes: Pairs (argument, result): the input whose memory takes the result at the end of the graph.
    """

    module: ir.Module
    outputs: list[int | None]
    strides: list[tuple[int, ...] | Order | None]
    writes: list[tuple[int, int]]


def import_graph(graph_module: GraphModule, phase: str, lowered: Collection[str] = ()) -> ImportedGraph:
    """Import a functional graph on fake tensors; ``phase`` is ``forward`` or ``backward``.

    ``lowered``: targets of calls that kernels can compute. They read and write tensors in another order of
    dims in place (:mod:`shardc.frontend.graph.memory_order`). The graph is not changed. Raises
    GraphNotCompiled.
    """
    return import_values(graph_module, phase, lowered)[0]


def import_values(
    graph_module: GraphModule, phase: str, lowered: Collection[str] = ()
) -> tuple[ImportedGraph, dict[Result, ir.Value]]:
    """Return the imported graph, and its nodes' values in the function, valid until a pass changes it.

    ``lowered`` as in :func:`import_graph`.
    """
    check_graph(graph_module)
    graph = _copy(graph_module)
    _mark(graph, phase)
    written = _take_writes(graph)
    _drop_aliases(graph)
    drop_copies(graph)
    join_sums(graph)
    join_parts(graph)
    separate_maxima(graph)
    drop_layouts(graph)
    results, numbers = _number_outputs(graph)
    returned = len(results)
    writes = [(argument, returned + number) for number, argument in enumerate(written)]
    results += written.values()
    if lowered:
        order_values(graph, results, lowered)
    graph.output_node().args = (results,)
    expected = expected_calls(graph)
    step = _step_graph(graph, results)
    try:
        module = import_step(step, new_context())
    except UnsupportedOp as error:
        reason = str(error.fields["reason"]).partition("\n")[0]
        raise GraphNotCompiled(op=error.fields["op"], reason=reason, where=error.where) from error
    except ir.MLIRError as error:
        raise _refused(error, expected) from error
    names = [spec.name for spec in step.arguments]
    values = check_calls(module, names, expected, keep=_sharing_memory_with(results))
    for node in graph.nodes:
        if DENSE in node.meta and (value := values.get(Result(node.name, 0))) is not None:
            value.owner.attributes[DENSE] = ir.UnitAttr.get(value.owner.context)
    strides = [*map(_strides, results[:returned]), *[None] * len(writes)]
    note_strides(module.body.operations[0].operation, list(map(_strides, placeholders(graph))))
    return ImportedGraph(module, numbers, strides, writes), values


def _strides(node: Node) -> tuple[int, ...] | Order | None:
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        return None
    if any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride())):
        plain = tuple(range(value.dim()))
        dims = next((d for d in (plain, stride_order(value)) if _is_dense(value, d)), ())
        return None if dims == plain else Order(dims)
    return None if value.is_contiguous() else tuple(value.stride())


def _is_dense(value: torch.Tensor, dims: tuple[int, ...]) -> bool:
    """Return whether a tensor is known to be dense with this order of dims, without fixing sizes."""
    expected: int | torch.SymInt = 1
    for d in reversed(dims):
        size, stride = value.shape[d], value.stride(d)
        if not statically_known_true(size == 1) and not statically_known_true(stride == expected):
            return False
        expected = expected * size
    return True


def _refused(error: ir.MLIRError, expected: list[ExpectedCall]) -> GraphNotCompiled:
    """Return the cause if the torch dialect's verifier rejects an argument that PyTorch accepts."""
    message = error.error_diagnostics[0].message
    op = message.partition("'torch.")[2].partition("'")[0]
    where = next((call.where for call in expected if call.target == op), None)
    return GraphNotCompiled(op=op or "the graph", reason=f"MLIR rejects it: {message}", where=where)


def _copy(module: GraphModule) -> Graph:
    """Copy the graph and turn the tensors that its module holds into inputs, after all others."""
    graph = Graph()
    last: Node | None = None
    copies: dict[Node, Node] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            last = copies[node] = graph.node_copy(node)
            if not isinstance(node.meta["val"], torch.Tensor | torch.SymInt | torch.SymFloat):
                last.meta["val"] = None  # other inputs are only passed through
    for node in module.graph.nodes:
        if node.op == "get_attr":
            with graph.inserting_after(last) if last is not None else graph.inserting_before():
                last = copies[node] = graph.placeholder(node.name)
            last.meta["val"] = node.meta["val"]
        elif node.op == "output":
            graph.output(torch.fx.map_arg(node.args[0], copies.__getitem__))
        elif node.op != "placeholder":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return graph


def _mark(graph: Graph, phase: str) -> None:
    """Record phase and user lines on every call, and rewrite ops in the importer's form."""
    for node in list(graph.find_nodes(op="call_function", target=torch.sym_sum)):
        _write_sum(graph, node)
    for node in calls(graph):
        node.meta[PHASE], node.meta[FRAMES] = phase, frames_of(node.meta)
        if of_numbers := overload_of(node):
            node.target = of_numbers
            _convert_numbers(graph, node)
        node.target = _SAME.get(node.target) or scalar_overload(node) or node.target
        if node.target in _OF_THE_TENSORS_DTYPE:
            node.args, node.kwargs = pytree.tree_map_only(bool, int, (node.args, node.kwargs))
        if node.target is aten.full.default:  # without a dtype the importer turns True into an int
            node.kwargs = {**node.kwargs, "dtype": node.meta["val"].dtype}


def _write_sum(graph: Graph, node: Node) -> None:
    """Rewrite a sum of many sizes as sums of two."""
    total, *rest = list_at(node, 0)
    for term in rest:
        value = _number(total) + _number(term)
        with graph.inserting_before(node):
            total = graph.call_function(operator.add, (total, term))
        total.meta = {**node.meta, "val": value}
    assert isinstance(total, Node)
    replace_by(node, total)


def _number(arg: Argument) -> int | torch.SymInt:
    value = arg.meta["val"] if isinstance(arg, Node) else arg
    assert isinstance(value, int | torch.SymInt)
    return value


def _convert_numbers(graph: Graph, node: Node) -> None:
    """Convert integer arguments to floats if the operator declares floats."""
    args = list(node.args)
    parameters = schema_of(operator_of(node)).arguments
    for position, (arg, parameter) in enumerate(zip(args, parameters, strict=True)):
        value = arg.meta["val"] if isinstance(arg, Node) else arg
        if str(parameter.type) != "float" or not isinstance(value, int | torch.SymInt):
            continue
        if not isinstance(arg, Node):
            args[position] = float(value)
            continue
        with graph.inserting_before(node):
            args[position] = made = graph.call_function(aten.Float.int, (arg,))
        made.meta = {**node.meta, "val": torch.sym_float(value)}
    node.args = tuple(args)


def _drop_aliases(graph: Graph) -> None:
    """Drop ``detach`` and ``alias`` unless the caller sees both tensors of the shared memory."""
    output = graph.output_node()
    for node in list(graph.nodes):
        if node.target in _ALIASES:
            source = node_at(node)
            if output not in node.users or (source.op != "placeholder" and output not in source.users):
                replace_by(node, source)


def _take_writes(graph: Graph) -> dict[int, Node]:
    """Remove the final ``copy_`` calls into inputs; return each written input's new value, by number."""
    inputs = placeholders(graph)
    found: dict[int, Node] = {}
    for node in final_writes(graph):
        value = node_at(node, 1)
        while value.target in _ALIASES:
            value = node_at(value)
        found.setdefault(inputs.index(node_at(node)), value)  # the last write to an input counts
        replace_by(node, node_at(node))
    return dict(sorted(found.items()))


def _number_outputs(graph: Graph) -> tuple[list[Node], list[int | None]]:
    """Return the returned nodes, and each output's number among them."""
    numbers = itertools.count()
    places = [next(numbers) if isinstance(value, Node) else None for value in outputs(graph)]
    return [value for value in outputs(graph) if isinstance(value, Node)], places


def _step_graph(graph: Graph, results: list[Node]) -> StepGraph:
    where = next((node.meta[FRAMES] for node in calls(graph)), UNKNOWN)
    module = LazyGraphModule({}, graph)  # one that never runs need not be written as Python code
    return StepGraph(module, [*map(_spec, placeholders(graph))], [*map(_spec, results)], {}, {}, where)


def _spec(node: Node) -> TensorSpec:
    value = node.meta["val"]
    role = "input" if node.op == "placeholder" else "output"
    if not isinstance(value, torch.Tensor):  # a size, or a gradient that an op does not compute
        return TensorSpec(node.name, role, (), torch.int64)
    return TensorSpec(node.name, role, tuple(value.shape), value.dtype)


def _sharing_memory_with(results: list[Node]) -> set[str]:
    """Return names of calls whose results share memory with an output.

    No two of them may be merged: a caller that writes to one output must not change the other.
    """
    storages = {ref for node in results for ref in _storages(node)}
    return {node.name for node in (results[0].graph.nodes if results else ()) if storages & _storages(node)}


def _storages(node: Node) -> set[StorageWeakRef]:
    return {StorageWeakRef(value.untyped_storage()) for value in values_of(node)}
