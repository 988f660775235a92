"""Fusing a graph and compiling its kernels; what does not compile goes back to ATen, group by group."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

from torch_mlir import ir

from shardc.backends.cpu.compile import build_library, compile_functions
from shardc.backends.cpu.extract import extract, kernel_name, kernels
from shardc.diagnostics.dynamo import KernelNotCompiled, ShardcFallbackWarning
from shardc.frontend.aot_graph import ImportedGraph
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.runtime.kernels import Library

log = logging.getLogger(__name__)

_said: set[str] = set()


def fuse_graph(
    make: Callable[[], ImportedGraph], graph: ImportedGraph, numerics: str
) -> tuple[ImportedGraph, Library | None, bool]:
    """``graph`` fused, with the library of its kernels, if it has any, and whether all of them compiled.

    Groups whose kernels do not compile stay calls of ATen, and a warning says so; for that ``make`` imports it anew.
    """
    fuse_module(graph.module, numerics, _strided_results(graph))
    try:
        return graph, _library(graph), True
    except Exception:  # whatever went wrong in there, ATen has every op of the group
        log.debug("kernels could not be compiled", exc_info=True)
    failed = _failing(graph.module)
    graph = make()
    try:
        fuse_module(graph.module, numerics, _strided_results(graph), failed)
        return graph, _library(graph), False
    except Exception as error:
        log.debug("kernels could not be compiled", exc_info=True)
        _say_once("all groups of a graph", error)
        return make(), None, False


def _library(graph: ImportedGraph) -> Library | None:
    return Library(build_library(graph.module)) if kernels(graph.module) else None


def _failing(module: ir.Module) -> frozenset[str]:
    """The calls (``kern.calls``) of the kernels that do not compile by themselves."""
    found: set[str] = set()
    with module.context, ir.Location.unknown():
        for function in extract(module).body:
            name = ir.StringAttr(function.attributes["sym_name"]).value
            single = ir.Module.create()
            function.operation.clone(ip=ir.InsertionPoint(single.body))
            try:
                compile_functions(single)
            except Exception as error:
                failed = [op for op in kernels(module) if kernel_name(op) == name]
                _say_once(", ".join(dict.fromkeys(_texts(failed[0], "kern.ops"))), error)
                found.update(call for op in failed for call in _texts(op, "kern.calls"))
    return frozenset(found)


def _texts(op: ir.Operation, name: str) -> list[str]:
    return [ir.StringAttr(text).value for text in op.attributes[name]]


def _strided_results(graph: ImportedGraph) -> frozenset[ir.Value]:
    """The results that callers expect laid out otherwise than a kernel does: not contiguous."""
    block = graph.module.body.operations[0].operation.regions[0].blocks[0]
    returned = list(block.operations)[-1].operation.operands
    return frozenset(value for value, strides in zip(returned, graph.strides, strict=True) if strides)


def _say_once(ops: str, error: Exception) -> None:
    text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    message = str(KernelNotCompiled(ops=ops, error=text))
    if message not in _said:
        _said.add(message)
        warnings.warn(message, ShardcFallbackWarning, stacklevel=2)
