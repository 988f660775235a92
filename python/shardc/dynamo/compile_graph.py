"""Compiles one graph of ``torch.compile`` (import, fusion, emission), or loads it from the program cache."""

from __future__ import annotations

import logging
from functools import cache

import torch
from torch.fx import GraphModule
from torch_mlir import ir

from shardc.backends.base import Target
from shardc.backends.torch.emit_graph import emit_graph
from shardc.compiler.compilation import Compilation, CompileOptions, FusedProgram
from shardc.dynamo import program_cache
from shardc.dynamo.checks import Check
from shardc.dynamo.cuda_graph_plan import graph_plan
from shardc.dynamo.explanations import is_explained, note_fused, report_peak
from shardc.dynamo.program import GraphProgram, runner
from shardc.dynamo.program_key import program_key
from shardc.dynamo.settings import Settings
from shardc.frontend.graph.aot_graph import ImportedGraph, constants_of, import_graph
from shardc.frontend.graph.graph_check import check_graph
from shardc.frontend.graph.host_scalars import host_scalars
from shardc.frontend.nodes import values_of
from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.lower.table import lowered_targets
from shardc.passes.manager.base import Pass
from shardc.passes.manager.pass_pipelines import build, run
from shardc.runtime.report import logs, progress

PIPELINE = "torch-group-queries,torch-share"
"""Passes that an imported graph goes through before it is fused."""


@progress.phase("a graph")
def compile_graph(
    settings: Settings,
    constraints: FusionConstraints | None,
    phase: str,
    graph: GraphModule,
    is_inference: bool = False,
    checks: tuple[Check, ...] = (),
) -> GraphProgram:
    """Return the program of a functional graph on fake tensors.

    ``is_inference``: whether a forward has no backward. ``checks``: calls that look at the last results,
    and may raise errors.

    Raises GraphNotCompiled, FusionRefused.
    """
    constraints = settings.constraints() if constraints is None else constraints
    device, constants = check_graph(graph), constants_of(graph)
    target = settings.target_of(device)
    options = None if target is None else _options(settings, constraints, target, device)
    key = program_key(graph, phase, f"{settings.cache_key()} {_key(target, options)}")
    found = None if is_explained() else program_cache.load(key)
    is_whole = True
    if found is None:
        imported = _imported(graph, phase, target is not None)
        if target is None or options is None:
            fused = FusedProgram(imported.module, is_fused=not settings.kernels.fuse)
        else:
            fused = _compiled(graph, phase, imported, target, options)
            took = ("fusion", fused.fuse_s), ("kernels", fused.compile_s)
            logs.seconds(took, f"torch.compile, {phase}")
            note_fused(phase, fused.module, fused.report)
        is_whole, library = fused.is_whole and not (target and constraints.unmatched), fused.kernels
        relaid = bool(library or fused.libraries)
        pooled = target is not None and target.pooled
        text = emit_graph(fused.module, imported.outputs, imported.writes, imported.strides, pooled, relaid)
        if is_whole:  # otherwise the next process must compile again and repeat the warnings
            program_cache.store(key, text, target.backend if target else "", fused.path)
    else:
        text, library = found
        constraints.unmatched.clear()  # programs are stored only if all constraints were met
    report_peak(phase, text, graph, constants, library)
    asked, strict = settings.kernels.cuda_graphs, settings.kernels.fuse
    plan = graph_plan(graph, phase, is_inference, device, len(constants)) if asked else None
    run_, scalars = runner(text, library, device, plan, strict), host_scalars(graph, device)
    kept = key if is_whole else None
    return GraphProgram(run_, kept, device, constants, is_complex(graph), scalars, plan, checks, strict)


def _imported(graph: GraphModule, phase: str, is_fused: bool) -> ImportedGraph:
    imported = import_graph(graph, phase, lowered_targets() if is_fused else ())
    run(imported.module, _passes(), verify_each=False)
    return imported


def _compiled(
    graph: GraphModule, phase: str, imported: ImportedGraph, target: Target, options: CompileOptions
) -> FusedProgram:
    """Fuse and compile ``imported``. Further copies are imported from the graph again."""
    first = [imported.module]

    def make() -> ir.Module:
        return first.pop() if first else _imported(graph, phase, True).module

    return Compilation(make, target, options, imported.strides, imported.writes).run()


def _options(
    settings: Settings, constraints: FusionConstraints, target: Target, device: torch.device
) -> CompileOptions:
    here, kernels = target.local_device(), settings.kernels
    stays = kernels.matmuls == "auto" and not kernels.is_measured
    return CompileOptions(
        settings.numerics.rounding,
        "extern" if stays else kernels.matmuls,
        constraints,
        device=device if here is not None and kernels.is_measured else None,
        libraries=kernels.is_measured,
        tf32=torch.get_float32_matmul_precision() != "highest",
        explain=is_explained() or logs.FUSION.isEnabledFor(logging.INFO),
        load=True,
    )


def _key(target: Target | None, options: CompileOptions | None) -> str:
    """Return the part of a program's key that the settings do not cover."""
    if target is None or options is None:
        return ""
    measured = "models" if options.device is None else target.clock(options.device).surroundings()
    return f"{target.backend} {target.key()} {options.tf32} {measured}"


def is_complex(graph: GraphModule) -> bool:
    """Return whether any value of the graph is complex."""
    return any(value.is_complex() for node in graph.graph.nodes for value in values_of(node))


@cache
def _passes() -> list[Pass]:
    return build(PIPELINE)
