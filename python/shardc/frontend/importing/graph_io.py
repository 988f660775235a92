"""Inputs and outputs of a cleaned graph: lifts constants to arguments, drops unused ones, names results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.graph import CodeGen

from shardc.diagnostics.frontend import BufferChangesShape, TraceFailed
from shardc.frontend.importing.cleanup import remove_dead_nodes, where_of
from shardc.frontend.importing.insertion import insert_before
from shardc.frontend.importing.recorder import OPTIMIZER, PHASE, Frames
from shardc.frontend.nodes import history, outputs, placeholders, viewed
from shardc.frontend.step.spec import TensorSpec
from shardc.frontend.step.trace import Trace
from shardc.runtime.check import STATE_ROLES
from shardc.runtime.torch_private import FakeTensor

GRADIENT, PARAMETER = "shardc_gradient", "shardc_parameter"


@dataclass
class StepGraph:
    """A step ready to import: placeholders are ``arguments`` and outputs are ``results``, in order."""

    module: GraphModule
    arguments: list[TensorSpec]
    results: list[TensorSpec]
    gradients: dict[str, str]
    constants: dict[str, torch.Tensor]
    where: Frames


def finish(trace: Trace) -> StepGraph:
    """Give a cleaned trace its final arguments and results; mark gradients and the optimizer's nodes."""
    module = trace.graph
    arguments = dict(zip(placeholders(module.graph), trace.arguments, strict=True))
    results, gradients = _split_outputs(trace)
    _drop_state_without_gradient(arguments, results, gradients)
    results = _with_copies(results, arguments)
    constants = _lift_constants(trace, arguments)
    marked = _mark_gradients(gradients)
    _mark_parameters(results)
    module.graph.output_node().args = ([node for _, node in results],)
    remove_dead_nodes(module.graph)
    _drop_arguments(module, arguments)
    specs = [spec for spec, _ in results]
    return StepGraph(module, list(arguments.values()), specs, marked, constants, trace.where)


def _split_outputs(trace: Trace) -> tuple[list[tuple[TensorSpec, Node]], dict[str, Node | None]]:
    nodes: list[Any] = list(outputs(trace.graph.graph))
    held = {(spec.role, spec.name): spec for spec in trace.arguments}
    made = ((*key, node) for key, node in zip(trace.results, nodes, strict=False))
    specs = [held.get((role, name)) or _spec(role, name, node) for role, name, node in made]
    results = list(zip(specs, nodes[: len(specs)], strict=True))
    own = dict(zip(trace.arguments, placeholders(trace.graph.graph), strict=True))
    results = [(spec, _of_same_shape(spec, node, own)) for spec, node in results]
    return results, dict(zip(trace.gradients, nodes[len(specs) :], strict=True))


def _spec(role: str, name: str, node: Node) -> TensorSpec:
    value = node.meta["val"]
    return TensorSpec(name, role, tuple(value.shape), value.dtype)


def _with_copies(
    results: list[tuple[TensorSpec, Node]], arguments: dict[Node, TensorSpec]
) -> list[tuple[TensorSpec, Node]]:
    """Copy outputs that are state or views of it, because the step writes into that memory."""

    end, like = results[0][1].graph.output_node(), next(n for _, n in results if n.op == "call_function")

    def copied(spec: TensorSpec, node: Node) -> Node:
        source = viewed(node)
        if spec.role != "output" or source not in arguments or arguments[source].role not in STATE_ROLES:
            return node
        mode, clone = node.meta["val"].fake_mode, torch.ops.aten.clone.default
        return insert_before(end, clone, (node,), {"memory_format": torch.contiguous_format}, mode, like)

    return [(spec, copied(spec, node)) for spec, node in results]


def _of_same_shape(spec: TensorSpec, node: Node, own: dict[TensorSpec, Node]) -> Node:
    """Return the node of a result; the original buffer if the forward gave it another shape.

    That is allowed only for values made from numbers alone (such as a longer table of positions), since each
    step makes them again.
    """
    if spec.role != "buffer" or tuple(node.meta["val"].shape) == spec.shape:
        return node
    if any(n.op == "placeholder" for n in history(node)):
        shape = list(node.meta["val"].shape)
        raise BufferChangesShape(name=spec.name, before=list(spec.shape), after=shape, where=where_of(node))
    return own[spec]


def _drop_state_without_gradient(
    arguments: dict[Node, TensorSpec],
    results: list[tuple[TensorSpec, Node]],
    gradients: dict[str, Node | None],
) -> None:
    """Drop optimizer state of parameters without a gradient, as optimizers do."""

    def is_kept(spec: TensorSpec) -> bool:
        return spec.role != "opt_state" or gradients.get(spec.name.rpartition("/")[0]) is not None

    results[:] = [(spec, node) for spec, node in results if is_kept(spec)]
    for node in [node for node, spec in arguments.items() if not is_kept(spec)]:
        del arguments[node]


def _lift_constants(trace: Trace, arguments: dict[Node, TensorSpec]) -> dict[str, torch.Tensor]:
    """Turn tensors that the model holds outside parameters and buffers into arguments; numbers stay."""
    lifted: dict[int, Node] = {}
    constants: dict[str, torch.Tensor] = {}
    module, last = trace.graph, next(reversed(arguments))
    graph = module.graph
    for node in list(graph.find_nodes(op="get_attr")):
        value = getattr(module, str(node.target))
        _check_constant(node, value, trace)
        if value.numel() == 1:
            node.op, node.target = "call_function", torch.ops.aten.full.default
            node.args, node.kwargs = (list(value.shape), value.item()), {"dtype": value.dtype}
            continue
        if id(value) not in lifted:
            name = f"constant{len(constants)}"
            with graph.inserting_after(last):
                last = lifted[id(value)] = graph.placeholder(name)
            last.meta = dict(node.meta)
            arguments[last] = TensorSpec(name, "constant", tuple(value.shape), value.dtype)
            constants[name] = value.detach()
        node.replace_all_uses_with(lifted[id(value)])
        graph.erase_node(node)
    return constants


def _check_constant(node: Node, value: torch.Tensor, trace: Trace) -> None:
    if isinstance(value, FakeTensor) or value.is_meta:
        shape = list(value.shape)
        reason = f"it uses a tensor of shape {shape} that has no values and is not a parameter or buffer"
        hint = "give it values and register it with register_buffer, or pass it in the batch"
        raise TraceFailed(reason=reason, hint=hint, where=where_of(node))
    if name := trace.storages.get(value.untyped_storage().data_ptr()):
        reason = f"{name} is read through a reference other than the module's own attribute"
        hint = "read it as the attribute of the module that holds it"
        raise TraceFailed(reason=reason, hint=hint, where=where_of(node))


def _mark_gradients(gradients: dict[str, Node | None]) -> dict[str, str]:
    made = {name: node for name, node in gradients.items() if node is not None}
    for name, node in made.items():
        node.meta.setdefault(GRADIENT, []).append(name)
    return {name: node.name for name, node in made.items()}


def _mark_parameters(results: list[tuple[TensorSpec, Node]]) -> None:
    """Mark optimizer nodes that serve a single parameter with its name."""
    owner: dict[Node, str | None] = {}
    for spec, node in results:
        if spec.role in ("param", "opt_state"):
            name = spec.name.rpartition("/")[0] if spec.role == "opt_state" else spec.name
            _claim(node, name, owner)
    for node, name in owner.items():
        if name is not None:
            node.meta[PARAMETER] = name


def _claim(node: Node, name: str, owner: dict[Node, str | None]) -> None:
    stack = [node]
    while stack:
        node = stack.pop()
        if node.meta.get(PHASE) != OPTIMIZER or owner.get(node, "") in (name, None):
            continue
        owner[node] = None if node in owner else name
        stack += node.all_input_nodes


def _drop_arguments(module: GraphModule, arguments: dict[Node, TensorSpec]) -> None:
    """Erase placeholders that are no longer arguments, and hyperparameters that the step does not read."""
    for node in placeholders(module.graph):
        if not node.users and (node not in arguments or arguments[node].role == "hyper"):
            arguments.pop(node, None)
            module.graph.erase_node(node)
    # The tracer's code generator still packs and unpacks the lists of the traced step.
    module.graph.set_codegen(CodeGen())
    module.graph.lint()
    module.recompile()
