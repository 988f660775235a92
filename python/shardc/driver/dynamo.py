"""``torch.compile(model, backend="shardc")``: Dynamo's graphs, forward and backward, compiled for one device.

AOTAutograd hands over functional graphs. Each is imported into the torch dialect, goes through passes, and
(``graph_compiler.py``) runs as a Python function of calls (``TORCH_LOGS="+shardc.driver.dynamo"`` prints it): ATen's,
and those of kernels, compiled for the CPU or by Triton for the GPU. Sizes may be symbolic: a model called with a second
batch size is traced and compiled once more, for all sizes. A graph that the importer cannot take runs as AOTAutograd
traced it, one that AOTAutograd cannot trace as Dynamo captured it, and a
:class:`~shardc.diagnostics.dynamo.ShardcFallbackWarning` says so once per cause. A later process finds
Dynamo's traces (``frames/``), AOTAutograd's (``trace_cache.py``) and programs (``program_cache.py``) on disk.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo import disable
from torch._dynamo.backends.debugging import boxed_nop
from torch._dynamo.exc import TorchDynamoException
from torch._dynamo.utils import counters, flatten_graph_inputs
from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler, aot_module_simplified
from torch._functorch.partitioners import default_partition
from torch._inductor.output_code import OutputCode
from torch.fx import GraphModule

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.dynamo import GraphFailed, GraphNotCompiled, GraphNotTraced, ShardcFallbackWarning
from shardc.diagnostics.fusion import FusionWish
from shardc.driver.frames.hook import keep_frames
from shardc.driver.frames.trace import graph_traced
from shardc.driver.fusion import forget_choices, say_unmatched
from shardc.driver.gpu_target import gpu_target, has_kernels
from shardc.driver.graph_attention import attention_of_gpus
from shardc.driver.graph_program import GraphProgram, Runner
from shardc.driver.partition import SAVING, partition
from shardc.driver.settings import Settings
from shardc.driver.trace_cache import kept_on_disk, surroundings
from shardc.driver.unread_names import skip_unread_names
from shardc.frontend.complex_numbers import complex_table
from shardc.frontend.decompositions import decomposition_table
from shardc.frontend.foreach import fma_table, foreach_table
from shardc.frontend.graph_asserts import lift_asserts
from shardc.frontend.graph_random import GraphStream, drop_unread_seed, seeded
from shardc.frontend.recorder import BACKWARD, FORWARD

if TYPE_CHECKING:
    from shardc.passes.fuse.wishes import Wishes

log = logging.getLogger(__name__)

aten = torch.ops.aten
_LISTS = {
    aten.split.Tensor: aten.split.Tensor,
    aten.split_with_sizes.default: aten.split_with_sizes.default,
    aten.split_with_sizes_copy.default: aten.split_with_sizes_copy.default,
    aten.unbind.int: aten.unbind.int,
    aten.unbind_copy.int: aten.unbind_copy.int,
    aten.unsafe_split.Tensor: aten.split.Tensor,
    aten.unsafe_split_with_sizes.default: aten.split_with_sizes.default,
}
"""Ops that return lists, which the IR has no type for, and whose decomposition traces them as the views,
or copies of those."""

_said: set[tuple[str, str]] = set()


def shardc_backend(graph: GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """The backend that PyTorch finds under the name ``shardc``.

    ``options={"fuse": False}`` leaves every op an ATen call; ``"numerics"`` says where fused chains of 16-bit floats
    are rounded: ``"fused"`` at a kernel's results, ``"eager"`` after each op; ``"random"`` whose numbers random ops
    draw:
    ``"counter"``, those of ``compile_step`` from a seed of each call, or ``"torch"``, PyTorch's own; ``"externs"`` who
    computes the matmuls that are in no kernel: ``"measured"`` whichever of ATen and oneDNN is faster here, ``"aten"``
    always ATen.
    ``"matmuls"``: ``"measured"`` puts those into kernels, with what is around them, that are faster so on this device;
    ``"generated"`` all that share a kernel with something, ``"extern"`` none.
    ``"forbid_fusion"`` and ``"force_fusion"`` list edges such as ``"aten.add.Tensor+gelu@model.py:12"``: pairs of ops
    that must not, and that must share a kernel. ``"cuda_graphs": True`` (``mode="reduce-overhead"`` of ``torch.compile``
    sets it) replays programs of GPUs from CUDA graphs: see ``graphed_program.py``. Raises BadBackendOption, BadFusionEdge, FusionRefused.
    """
    asked = dict(options.pop("options", None) or {})
    if options.pop("mode", None) == "reduce-overhead":
        asked = {"cuda_graphs": True} | asked
    settings = Settings.of(asked)
    table = decomposition_table()
    lists = {op: table[same] for op, same in _LISTS.items()} | foreach_table() | fma_table() | complex_table()
    wishes = settings.wishes() if settings.has_edges else None
    compile_ = partial(_compile, settings, wishes)
    compilers = {
        "fw_compiler": partial(compile_, FORWARD, False),
        "bw_compiler": _last(wishes, partial(compile_, BACKWARD, False)),
        "inference_compiler": _last(wishes, partial(compile_, FORWARD, True)),
    }
    draws = GraphStream() if settings.random == "counter" else None
    fuses = settings.fuse and all(
        has_kernels(t.device) for t in example_inputs if isinstance(t, torch.Tensor)
    )
    cut = partial(_cut, settings) if fuses else default_partition
    forget_choices()
    try:
        with (
            seeded(graph) if draws else nullcontext(),
            kept_on_disk(graph, example_inputs, settings) as is_kept,
            attention_of_gpus(settings, example_inputs),
        ):
            form = _as_entry if is_kept else _as_function
            run = _traced(
                graph,
                example_inputs,
                **{name: form(compiler) for name, compiler in compilers.items()},
                decompositions={**lists, **(draws.table() if draws else {}), **(SAVING if fuses else {})},
                partition_fn=cut,
                keep_inference_input_mutations=True,
            )
        if is_kept:
            graph_traced(graph, run, surroundings(example_inputs, settings))
        return run
    except (TorchDynamoException, ShardcFallbackWarning, FusionWish):
        # Dynamo asks itself to begin again, or the user asked for warnings to be errors, or for what cannot be had
        raise
    except Exception as error:
        log.debug("a graph could not be traced by AOTAutograd", exc_info=True)
        text = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        _say_once(GraphNotTraced(error=text), "", text)
        return graph.forward


def _traced(
    graph: GraphModule, example_inputs: Sequence[Any], bw_compiler: Any, **others: Any
) -> Callable[..., Any]:
    """What runs the graph, by AOTAutograd: as PyTorch's own ``aot_autograd`` does it, which loads Inductor's scheduler
    first (0.2 s) to write a log that ``TORCH_COMPILE_DEBUG=1`` asks for.
    """
    if any(isinstance(value, list | tuple | dict) for value in example_inputs):  # compiled autograd's
        return flatten_graph_inputs(
            graph, example_inputs, partial(_traced, bw_compiler=bw_compiler, **others)
        )
    counted = counters["aot_autograd"]
    counted["total"] += 1
    try:
        run = aot_module_simplified(graph, example_inputs, bw_compiler=_untraced(bw_compiler), **others)
    except Exception:
        counted["not_ok"] += 1
        raise
    counted["ok"] += 1
    return disable(run, reason="do not trace AOT-compiled graph")


Compiler = Callable[[GraphModule, Sequence[Any]], GraphProgram]


def _as_entry(compiler: Compiler) -> SerializableAOTDispatchCompiler:
    """For AOTAutograd's cache."""
    return SerializableAOTDispatchCompiler(OutputCode, compiler)


def _as_function(compiler: Compiler) -> Callable[..., Runner]:
    """For AOTAutograd without its cache: a call of the program costs nothing beside it."""
    return lambda graph, example_inputs: compiler(graph, example_inputs).run


def _untraced(compiler: Any) -> Any:
    """``compiler`` of the backward: Dynamo, where it follows autograd's engine, follows neither it nor its program."""
    if isinstance(compiler, SerializableAOTDispatchCompiler):
        compiler.compiler_fn = _untraced(compiler.compiler_fn)
        return compiler

    def compile_(graph: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        program = disable(compiler, reason="do not trace backward compiler function")(graph, example_inputs)
        return disable(program, reason="do not trace generated backwards pass")

    return compile_


def _cut(
    settings: Settings, joint: GraphModule, inputs: Any, **given: Any
) -> tuple[GraphModule, GraphModule]:
    """Forward and backward of a joint graph, in which what becomes kernels over both is put together first."""
    _fuse_losses(settings, joint)
    return partition(joint, inputs, **given)


def _fuse_losses(settings: Settings, graph: GraphModule) -> None:
    """What becomes kernels of a GPU over forward and backward, in a graph that is one of both, or of forward alone."""
    values = (n.meta.get("val") for n in graph.graph.nodes)
    devices = dict.fromkeys(value.device for value in values if isinstance(value, torch.Tensor))
    gpus = [target for device in devices if (target := gpu_target(device)) is not None]
    if len(gpus) == 1 and settings.fuse and settings.matmuls != "extern":
        from shardc.driver.graph_losses import (
            fuse_losses,  # loads MLIR, which a start from the caches does without
        )

        fuse_losses(graph, settings, gpus[0])


def _last(wishes: Wishes | None, compiler: Compiler) -> Compiler:
    """``compiler`` for the last graph of a model: what fits none of them is told of."""

    def compile_(graph: GraphModule, example_inputs: Sequence[Any]) -> GraphProgram:
        program = compiler(graph, example_inputs)
        if wishes is not None:
            say_unmatched(wishes)
        return program

    return compile_


def _compile(
    settings: Settings,
    wishes: Wishes | None,
    phase: str,
    is_inference: bool,
    graph: GraphModule,
    example_inputs: Sequence[Any],
) -> GraphProgram:
    """The program of a graph; where that cannot be had, the graph itself, as the backend ``aot_eager`` runs it."""
    from shardc.driver import graph_compiler  # loads MLIR, which a start from the caches does without

    drop_unread_seed(graph)
    asserted = lift_asserts(graph)
    try:
        if is_inference:
            _fuse_losses(settings, graph)
        return graph_compiler.compile_graph(settings, wishes, phase, graph, is_inference, asserted)
    except FusionWish:
        raise
    except GraphNotCompiled as cause:
        _say_once(cause, str(cause.fields["op"]), str(cause.fields["reason"]))
    except Exception as error:  # whatever went wrong in here, the user's model has a graph that runs
        log.debug("a graph could not be compiled", exc_info=True)
        text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        _say_once(GraphFailed(error=text), "", text)
    graph.recompile()
    return GraphProgram(
        boxed_nop(graph, list(example_inputs)), is_complex=graph_compiler.is_complex(graph), asserted=asserted
    )


def _say_once(message: ShardcError, op: str, reason: str) -> None:
    if (op, reason) not in _said:
        _said.add((op, reason))
        warnings.warn(str(message), ShardcFallbackWarning, stacklevel=2)


skip_unread_names()  # Dynamo loads this module when it looks the backend up, before it traces
keep_frames(shardc_backend)
