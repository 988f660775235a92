"""What Dynamo finds out about a frame while it traces it, and the frame's graph, as the backend sees it."""

from __future__ import annotations

import types
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo.source import CallMethodItemSource
from torch._functorch._aot_autograd.aot_autograd_result import BundledAOTAutogradResult
from torch._guards import Guard, Source
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import py_sym_types
from torch.fx.experimental.symbolic_shapes import ShapeEnv, has_free_symbols
from torch.utils._pytree import tree_leaves

from shardc.driver.frames.content import NoContent
from shardc.driver.graph_program import GraphProgram


@dataclass(frozen=True)
class Graph:
    """A graph by its name among the frame's globals, with where its inputs come from and a hash of what its program
    depends on beside them. ``function`` runs it.
    """

    name: str
    inputs: list[Source]
    surroundings: str
    function: Callable[..., Any]
    is_static: bool
    """None of its values is a symbolic number, or has a symbolic size."""

    def result(self) -> BundledAOTAutogradResult[Any]:
        """What AOTAutograd keeps of it. Raises NoContent where it keeps nothing, or a program that is not on disk."""
        serialize = getattr(self.function, "serialize", None)
        if serialize is None:
            raise NoContent("AOTAutograd keeps nothing of its graph")
        result = serialize()
        for compiled in filter(None, (result.compiled_fw, result.compiled_bw)):
            if not isinstance(compiled.result, GraphProgram) or compiled.result.key is None:
                raise NoContent("a graph that runs through ATen")
        return result


@dataclass
class Trace:
    """What is known when Dynamo has traced a frame."""

    graphs: list[Graph] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    codes: list[types.CodeType] = field(default_factory=list)
    """Of all functions traced through."""
    key_order: list[Source] = field(default_factory=list)
    """Dicts whose order counts."""
    sizes: dict[Source, Any] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    """Modules, by the names that Dynamo gave them among the frame's globals."""
    installed: set[str] = field(default_factory=set)
    """The other names that it put there."""
    builtins: str | None = None
    is_static: bool = False

    def read(self, output: Any, variables: dict[str, Any], scope: dict[str, Any]) -> None:
        """``output`` is Dynamo's ``OutputGraph``, before it is cleaned up."""
        self.guards = list(output.guards)
        self.codes = list(output.tracing_context.traced_code)
        self.key_order = list(output.guard_on_key_order)
        self.sizes = dict(output.input_source_to_sizes_strides)
        self.imports = dict(output.import_sources)
        self.installed = set(output.installed_globals)
        self.builtins = output.name_of_builtins_dict_key_in_fglobals
        is_plain = not (
            output.torch_function_mode_stack or output.functorch_layers or output.aotautograd_guards
        )
        is_frame = output.local_scope is variables and output.global_scope is scope
        self.is_static = is_plain and is_frame and _is_static(output.shape_env)


def _is_static(shapes: ShapeEnv) -> bool:
    """Whether nothing depends on a symbolic size. PyTorch makes a symbol for what ``.item()`` of a number in a tensor
    would be, called or not: a batch norm's count of batches has one."""
    sources = (source for found in shapes.var_to_sources.values() for source in found)
    return not shapes.guards and all(isinstance(source, CallMethodItemSource) for source in sources)


current: ContextVar[Trace | None] = ContextVar("shardc_trace_of_frame", default=None)
"""Of the frame that Dynamo traces now, if it is to be kept."""


def graph_traced(graph: GraphModule, function: Callable[..., Any], surroundings: str) -> None:
    """Tells the frame that is traced of its graph, which AOTAutograd keeps. ``surroundings`` is a hash of what the
    program depends on beside the graph and its inputs' metadata."""
    if (trace := current.get()) is None:
        return
    sources = [node.meta["grapharg"].source for node in graph.graph.find_nodes(op="placeholder")]
    values = tree_leaves([node.meta.get("example_value") for node in graph.graph.nodes])
    is_static = not any(has_free_symbols(v) for v in values if isinstance(v, (torch.Tensor, *py_sym_types)))
    trace.graphs.append(Graph(graph.meta["backend_id"], sources, surroundings, function, is_static))
