"""Compiles one graph of ``torch.compile``: imported, fused, written as a program; or read from the program cache."""

from __future__ import annotations

from functools import cache, partial

import torch
from torch.fx import GraphModule

from shardc.backends.measure.clocks import DeviceClock
from shardc.backends.measure.contractions import measured_form
from shardc.backends.torch.emit_graph import emit_graph
from shardc.backends.triton.targets import Target
from shardc.driver import program_cache
from shardc.driver.fusion import fuse, is_explained
from shardc.driver.gpu_compile import is_tf32
from shardc.driver.gpu_contest import gpu_matmuls, is_here
from shardc.driver.gpu_graph import fuse_graph_for
from shardc.driver.gpu_target import gpu_target, has_kernels
from shardc.driver.graph_plan import graph_plan
from shardc.driver.graph_program import GraphProgram, runner
from shardc.driver.kernels import fuse_graph
from shardc.driver.memory import say_peak
from shardc.driver.piece_contest import MeasuredMatmuls
from shardc.driver.pipelines import build, run
from shardc.driver.program_key import program_key
from shardc.driver.settings import Settings
from shardc.frontend.aot_graph import ImportedGraph, constants_of, import_graph
from shardc.frontend.graph_check import check_graph, values_of
from shardc.frontend.host_scalars import host_scalars
from shardc.passes.base import Pass
from shardc.passes.extern.kern_extern import extern_module
from shardc.passes.fuse.piece import Choose
from shardc.passes.fuse.wishes import Wishes

PIPELINE = "torch-share"
"""What an imported graph goes through before it is written as a program."""


def compile_graph(
    settings: Settings,
    wishes: Wishes | None,
    phase: str,
    graph: GraphModule,
    is_inference: bool = False,
    asserted: tuple[str, ...] = (),
) -> GraphProgram:
    """The program of a functional graph on fake tensors, a forward that has no backward if ``is_inference``, whose last
    results hold what is ``asserted``.

    Raises GraphNotCompiled, FusionRefused.
    """
    wishes = settings.wishes() if wishes is None else wishes

    def prepared() -> ImportedGraph:
        imported = import_graph(graph, phase)
        run(imported.module, _passes(), verify_each=False)
        return imported

    device, constants = check_graph(graph), constants_of(graph)
    fuses = settings.fuse and has_kernels(device)
    gpu = gpu_target(device) if fuses else None
    key = program_key(
        graph, phase, " ".join([settings.cache_key(), *(_gpu_key(settings, gpu, device) if gpu else ())])
    )
    found = None if is_explained() else program_cache.load(key)
    whole = True
    if found is None:
        imported, library, externs = prepared(), None, 0
        if fuses and gpu:
            fuse_ = partial(fuse, wishes, phase, gpu.name, _gpu_matmuls(settings, gpu, device), for_gpu=True)
            imported, library, whole = fuse_graph_for(gpu, prepared, imported, settings.numerics, fuse_)
        elif fuses:
            fuse_ = partial(fuse, wishes, phase, None, _matmuls(settings))
            imported, library, whole = fuse_graph(prepared, imported, settings.numerics, fuse_)
            if settings.measured:
                externs = extern_module(imported.module, measured_form, settings.numerics)
        whole = whole and fuses == settings.fuse and not (fuses and wishes.unmatched)
        pooled = fuses and gpu is None
        strides = imported.strides if library or externs else ()
        text = emit_graph(imported.module, imported.outputs, imported.writes, strides, pooled)
        if whole:  # else the next process is to be told, too, what is not compiled
            program_cache.store(key, text, library)
    else:
        text, library = found
        wishes.unmatched.clear()  # only programs for which all were met are kept
    say_peak(phase, text, graph, constants, library)
    plan = graph_plan(graph, phase, is_inference, device, len(constants)) if settings.cuda_graphs else None
    run_, scalars = runner(text, library, device, plan), host_scalars(graph, device)
    return GraphProgram(
        run_, key if whole else None, device, constants, is_complex(graph), scalars, plan, asserted
    )


def _gpu_key(settings: Settings, gpu: Target, device: torch.device) -> tuple[str, ...]:
    """What a program for a GPU depends on besides the settings."""
    measured = settings.measured and is_here(device)
    return str(gpu), str(is_tf32()), DeviceClock(device).surroundings() if measured else "models"


def _matmuls(settings: Settings) -> str | Choose:
    """What decides on matmuls, as ``fuse_module`` takes it."""
    if settings.matmuls != "measured":
        return settings.matmuls
    return MeasuredMatmuls(settings.numerics) if settings.measured else "extern"


def _gpu_matmuls(settings: Settings, gpu: Target, device: torch.device) -> str | Choose:
    """As :func:`_matmuls`; by the models of costs where the GPU is not here."""
    if settings.matmuls != "measured":
        return settings.matmuls
    return (
        gpu_matmuls(gpu, device if is_here(device) else None, settings.numerics, is_tf32())
        if settings.measured
        else "extern"
    )


def is_complex(graph: GraphModule) -> bool:
    """Whether some value of the graph is."""
    return any(value.is_complex() for node in graph.graph.nodes for value in values_of(node))


@cache
def _passes() -> list[Pass]:
    return build(PIPELINE)
