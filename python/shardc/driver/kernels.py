"""Fusing a graph and compiling its kernels; what does not compile goes back to ATen, group by group."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

from torch_mlir import ir

from shardc.backends.body.extract import extract, kernel_name, kernels
from shardc.backends.cpu.compile import build_library, compile_functions
from shardc.backends.cpu.object_code import start_worker
from shardc.backends.cpu.target import check_target
from shardc.diagnostics.dynamo import KernelNotCompiled, ShardcFallbackWarning
from shardc.diagnostics.fusion import FusionWish
from shardc.diagnostics.kernels import UnsupportedTarget
from shardc.dialects.location import source_line
from shardc.driver.tuned import use_tuned
from shardc.frontend.aot_graph import ImportedGraph
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.runtime.errors import RuntimeFailure
from shardc.runtime.kernels import Library
from shardc.runtime.team import openmp_path

log = logging.getLogger(__name__)

ALL = "all groups of a graph"

_said: set[str] = set()
"""The causes that a warning told of."""


Fuse = Callable[..., object]
"""``fuse_module``, or what does the same and reports; called with its first four parameters and ``writes``."""


def fuse_graph(
    make: Callable[[], ImportedGraph], graph: ImportedGraph, numerics: str, fuse: Fuse = fuse_module
) -> tuple[ImportedGraph, Library | None, bool]:
    """``graph`` fused, with the library of its kernels, if it has any, and whether all of them compiled.

    Groups whose kernels do not compile stay calls of ATen, and a warning says so; for that ``make`` imports it anew.
    Raises FusionWish for what a user wants and cannot have.
    """
    if not can_compile():
        return graph, None, False
    start_worker()
    try:
        fuse(graph.module, numerics, strided_results(graph), frozenset(), writes=graph.writes)
    except FusionWish:
        raise
    except Exception as error:  # whatever went wrong in there, ATen has every op
        say_once(ALL, error)
        return make(), None, False
    try:
        return graph, _library(graph), True
    except Exception as error:
        failed = failing(graph.module)
        if not failed:
            say_once(ALL, error)
            return make(), None, False
    graph = make()
    try:
        fuse(graph.module, numerics, strided_results(graph), failed, writes=graph.writes)
        return graph, _library(graph), False
    except Exception as error:
        say_once(ALL, error)
        return make(), None, False


def can_compile() -> bool:
    """Whether kernels can be made for this machine; a warning says once why not."""
    try:
        check_target()
        openmp_path()
    except (UnsupportedTarget, RuntimeFailure) as error:
        if str(error) not in _said:
            _said.add(str(error))
            warnings.warn(str(error), ShardcFallbackWarning, stacklevel=2)
        return False
    return True


def _library(graph: ImportedGraph) -> Library | None:
    if not kernels(graph.module):
        return None
    use_tuned(graph.module)
    return Library(build_library(graph.module))


def failing(module: ir.Module) -> frozenset[str]:
    """The calls (``kern.calls``) of the kernels that do not compile by themselves;
    a warning for each cause names them.
    """
    groups: dict[str, list[ir.Operation]] = {}
    errors: dict[str, Exception] = {}
    with module.context, ir.Location.unknown():
        for function in extract(module).body:
            name = ir.StringAttr(function.attributes["sym_name"]).value
            single = ir.Module.create()
            function.operation.clone(ip=ir.InsertionPoint(single.body))
            try:
                compile_functions(single)
            except Exception as error:
                errors.setdefault(_cause(error), error)
                groups.setdefault(_cause(error), []).extend(
                    op for op in kernels(module) if kernel_name(op) == name
                )
    for cause, failed in groups.items():
        say_once(_named(failed), errors[cause], source_line(failed[0].location))
    return frozenset(call for failed in groups.values() for op in failed for call in _texts(op, "kern.calls"))


def _named(groups: list[ir.Operation]) -> str:
    """The ops of the first of ``groups``, and how many more there are."""
    ops = ", ".join(dict.fromkeys(_texts(groups[0], "kern.ops")))
    return ops if len(groups) == 1 else f"{ops} (and of {len(groups) - 1} more groups)"


def _texts(op: ir.Operation, name: str) -> list[str]:
    return [ir.StringAttr(text).value for text in op.attributes[name]]


def strided_results(graph: ImportedGraph) -> frozenset[ir.Value]:
    """The results that callers expect laid out otherwise than a kernel does: not contiguous."""
    block = graph.module.body.operations[0].operation.regions[0].blocks[0]
    returned = list(block.operations)[-1].operation.operands
    return frozenset(
        value for value, strides in zip(returned, graph.strides, strict=True) if strides is not None
    )


def say_once(ops: str, error: Exception, where: str | None = None) -> None:
    """A warning that a kernel of ``ops`` could not be made, once for each cause; later ones go to the log."""
    log.debug("kernels could not be compiled: %s", ops, exc_info=error)
    if _cause(error) not in _said:
        _said.add(_cause(error))
        message = KernelNotCompiled(ops=ops, error=_cause(error), where=where)
        warnings.warn(str(message), ShardcFallbackWarning, stacklevel=2)


def _cause(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
