"""``torch.compile(model, backend="shardc")``: Dynamo's graphs, forward and backward, compiled for one device.

AOTAutograd hands over functional graphs. Each is imported into the torch dialect, goes through the passes below, and
runs as a Python function of calls (``TORCH_LOGS="+shardc.driver.dynamo"`` prints it): ATen's, and on the CPU
those of compiled kernels. Sizes may be symbolic: a model called with a second batch size is traced and compiled once
more, for all sizes. A graph that the importer cannot take runs as AOTAutograd traced it, one that
AOTAutograd cannot trace as Dynamo captured it, and a :class:`~shardc.diagnostics.dynamo.ShardcFallbackWarning` says so
once per cause.
"""

from __future__ import annotations

import itertools
import linecache
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._dynamo.exc import TorchDynamoException
from torch._functorch._aot_autograd.runtime_wrappers import _AnalyzeCustomOpInputOutputMode
from torch.fx import GraphModule
from torch.utils._python_dispatch import _get_current_dispatch_mode, _pop_mode_temporarily

from shardc.backends.measure.contest import surroundings
from shardc.backends.measure.contractions import measured_form
from shardc.backends.torch.emit_graph import emit_graph
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.dynamo import (
    BadBackendOption,
    GraphFailed,
    GraphNotCompiled,
    GraphNotTraced,
    ShardcFallbackWarning,
)
from shardc.diagnostics.fusion import BadFusionEdge, FusionWish
from shardc.driver import program_cache
from shardc.driver.fusion import fuse, is_explained, say_unmatched
from shardc.driver.kernels import fuse_graph
from shardc.driver.pipelines import build, run
from shardc.frontend.aot_graph import ImportedGraph, constants_of, import_graph
from shardc.frontend.decompositions import decomposition_table
from shardc.frontend.foreach import fma_table, foreach_table
from shardc.frontend.graph_check import check_graph, values_of
from shardc.frontend.graph_random import GraphStream, drop_unread_seed, seeded
from shardc.frontend.recorder import BACKWARD, FORWARD
from shardc.passes.base import Pass
from shardc.passes.extern.kern_extern import extern_module
from shardc.passes.fuse.kern_fuse import NUMERICS
from shardc.passes.fuse.lower_matmul import CHOICES as MATMULS
from shardc.passes.fuse.wishes import Wishes
from shardc.runtime import pool
from shardc.runtime.kernels import Library

log = logging.getLogger(__name__)

PIPELINE = "torch-share"
"""What an imported graph goes through before it is written as a program."""

aten = torch.ops.aten
_LISTS = {
    aten.split.Tensor: aten.split.Tensor,
    aten.split_with_sizes.default: aten.split_with_sizes.default,
    aten.unbind.int: aten.unbind.int,
    aten.unsafe_split.Tensor: aten.split.Tensor,
    aten.unsafe_split_with_sizes.default: aten.split_with_sizes.default,
}
"""Ops that return lists of views, which the IR has no type for, and whose decomposition traces them as the views."""

_said: set[tuple[str, str]] = set()
_numbers = itertools.count()

Runner = Callable[[list[Any]], Sequence[Any]]


def shardc_backend(graph: GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """The backend that PyTorch finds under the name ``shardc``.

    ``options={"fuse": False}`` leaves every op an ATen call; ``"numerics"`` says where fused chains of 16-bit floats are
    rounded: ``"fused"`` at a kernel's results, ``"eager"`` after each op; ``"random"`` whose numbers random ops draw:
    ``"counter"``, those of ``compile_step`` from a seed of each call, or ``"torch"``, PyTorch's own; ``"externs"`` who computes
    the matmuls that are in no kernel: ``"measured"`` whichever of ATen and oneDNN is faster here, ``"aten"`` always ATen.
    ``"matmuls"``: ``"generated"`` puts them into kernels with what is around them, ``"extern"`` does not.
    ``"forbid_fusion"`` and ``"force_fusion"`` list edges such as ``"aten.add.Tensor+gelu@model.py:12"``: pairs of ops that must
    not, and that must share a kernel. Raises BadBackendOption, BadFusionEdge, FusionRefused.
    """
    settings = Settings.of(options.pop("options", None) or {})
    table = decomposition_table()
    lists = {op: table[same] for op, same in _LISTS.items()} | foreach_table() | fma_table()
    wishes = settings.wishes()
    forward, backward = (partial(_compile, settings, wishes, phase) for phase in (FORWARD, BACKWARD))
    draws = GraphStream() if settings.random == "counter" else None
    compiler = aot_autograd(
        fw_compiler=forward,
        bw_compiler=_last(wishes, backward),
        inference_compiler=_last(wishes, forward),
        decompositions={**lists, **(draws.table() if draws else {})},
        keep_inference_input_mutations=True,
    )
    try:
        with seeded(graph) if draws else nullcontext():
            return compiler(graph, example_inputs, **options)
    except (TorchDynamoException, ShardcFallbackWarning, FusionWish):
        raise  # Dynamo asks itself to begin again, or the user asked for warnings to be errors, or for what cannot be had
    except Exception as error:
        log.debug("a graph could not be traced by AOTAutograd", exc_info=True)
        text = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        _say_once(GraphNotTraced(error=text), "", text)
        return graph.forward


EDGES = ("forbid_fusion", "force_fusion")


@dataclass(frozen=True)
class Settings:
    """The options of the backend."""

    fuse: bool = True
    numerics: str = "fused"
    random: str = "counter"
    externs: str = "measured"
    matmuls: str = "extern"
    forbid_fusion: tuple[str, ...] = ()
    force_fusion: tuple[str, ...] = ()

    @staticmethod
    def of(options: Mapping[str, Any]) -> Settings:
        """Raises BadBackendOption, BadFusionEdge."""
        allowed = {
            "fuse": (True, False), "numerics": NUMERICS, "random": ("counter", "torch"), "externs": ("measured", "aten"),
            "matmuls": MATMULS,
        }  # fmt: skip
        found: dict[str, Any] = {}
        for option, value in options.items():
            is_list = isinstance(value, list | tuple) and all(isinstance(edge, str) for edge in value)
            if not is_list if option in EDGES else value not in allowed.get(option, ()):
                raise BadBackendOption(option=option, value=value)
            found[option] = tuple(value) if option in EDGES else value
        settings = Settings(**found)
        settings.wishes()
        return settings

    def wishes(self) -> Wishes:
        """What the user wants of fusion. Raises BadFusionEdge."""
        wishes = Wishes.of(self.forbid_fusion, self.force_fusion)
        for edge in (*wishes.forbid, *wishes.force):
            if edge.first.number or edge.second.number:
                problem = "numbers are those of one program, and a model has several; name the ops by target and line"
                raise BadFusionEdge(edge=edge.text, problem=problem)
        return wishes


def _last(wishes: Wishes, compiler: Callable[..., Runner]) -> Callable[..., Runner]:
    """``compiler`` for the last graph of a model: what fits none of them is told of."""

    def compile_(graph: GraphModule, example_inputs: Sequence[Any]) -> Runner:
        runner = compiler(graph, example_inputs)
        say_unmatched(wishes)
        return runner

    return compile_


def _compile(settings: Settings, wishes: Wishes, phase: str, graph: GraphModule, example_inputs: Sequence[Any]) -> Runner:
    """A graph as a function of a list of inputs, which it empties."""
    drop_unread_seed(graph)
    runner = _program_or_graph(settings, wishes, graph, example_inputs, phase)
    complex_ = any(value.is_complex() for node in graph.graph.nodes for value in values_of(node))
    return _unwatched(runner) if complex_ else runner


def _program_or_graph(
    settings: Settings, wishes: Wishes, graph: GraphModule, example_inputs: Sequence[Any], phase: str
) -> Runner:
    """The program of a graph; where that cannot be had, the graph itself, as the backend ``aot_eager`` runs it."""
    try:
        return _compiled(settings, wishes, graph, phase)
    except FusionWish:
        raise
    except GraphNotCompiled as cause:
        _say_once(cause, str(cause.fields["op"]), str(cause.fields["reason"]))
    except Exception as error:  # whatever went wrong in here, the user's model has a graph that runs
        log.debug("a graph could not be compiled", exc_info=True)
        text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        _say_once(GraphFailed(error=text), "", text)
    return boxed_nop(graph, list(example_inputs))


def _compiled(settings: Settings, wishes: Wishes, graph: GraphModule, phase: str) -> Runner:
    def prepared() -> ImportedGraph:
        imported = import_graph(graph, phase)
        run(imported.module, _passes(), verify_each=False)
        return imported

    device, constants = check_graph(graph), constants_of(graph)
    measured = settings.fuse and settings.externs == "measured"
    key = program_cache.program_key(graph, phase, f"{settings} {surroundings()}" if measured else str(settings))
    found = None if is_explained() else program_cache.load(key)
    if found is None:
        imported, library, whole, externs = prepared(), None, True, 0
        if settings.fuse and device.type == "cpu":
            imported, library, whole = fuse_graph(prepared, imported, settings.numerics, partial(fuse, wishes, phase, settings.matmuls))
            whole = whole and not wishes.unmatched
            if measured:
                externs = extern_module(imported.module, measured_form, settings.numerics)
        pooled = settings.fuse and device.type == "cpu"
        strides = imported.strides if library or externs else ()
        text = emit_graph(imported.module, imported.outputs, imported.writes, strides, pooled)
        if whole:  # else the next process is to be told, too, what is not compiled
            program_cache.store(key, text, library)
    else:
        text, library = found
        wishes.unmatched.clear()  # only programs for which all were met are kept
    log.debug("%s", text)
    function = partial(_load(text, library), SimpleNamespace(device=device))
    return _with_constants(function, constants) if constants else _marked(function)


@cache
def _passes() -> list[Pass]:
    return build(PIPELINE)


def _load(text: str, library: Library | None = None) -> Callable[..., Any]:
    """The program's function, with its kernels from ``library``. Tracebacks through it show its lines."""
    file = f"<shardc graph {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"empty": pool.contiguous}
    if library is not None:
        names |= {"kernel": library.kernel, "kernels": library.batch}
    exec(compile(text, file, "exec"), names)
    for name, value in names.items():
        if isinstance(value, torch._ops.OpOverload):
            names[name] = value._op  # what calling it does, less one Python call: a quarter of a small op's time
    return names["graph"]


def _with_constants(function: Runner, constants: list[torch.Tensor]) -> Runner:
    def call(inputs: list[Any]) -> Sequence[Any]:
        inputs.extend(constants)  # into the list that the program empties
        return function(inputs)

    return _marked(call)


def _unwatched(function: Runner) -> Runner:
    """``function`` without the mode under which AOTAutograd makes first calls, to check what custom operators alias.

    Under any dispatch mode ATen forgets conjugations inside its own kernels: the complex ``linalg.pinv`` of a first
    call would be another matrix (https://github.com/pytorch/pytorch/issues/198118).
    """

    def call(inputs: list[Any]) -> Sequence[Any]:
        if isinstance(_get_current_dispatch_mode(), _AnalyzeCustomOpInputOutputMode):
            with _pop_mode_temporarily():
                return function(inputs)
        return function(inputs)

    return _marked(call)


def _marked(function: Runner) -> Runner:
    """AOTAutograd passes a function so marked its inputs in a list, to be emptied, and keeps none of them itself."""
    function._boxed_call = True  # type: ignore[attr-defined]
    return function


def _say_once(message: ShardcError, op: str, reason: str) -> None:
    if (op, reason) not in _said:
        _said.add((op, reason))
        warnings.warn(str(message), ShardcFallbackWarning, stacklevel=2)
