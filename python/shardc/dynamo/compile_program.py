"""Imports, fuses and emits one graph of ``torch.compile``. Importing this module loads MLIR."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache

import torch
from torch.fx import GraphModule
from torch_mlir import ir

from shardc.backends.base import Target
from shardc.backends.torch.emit_graph import emit_graph
from shardc.compiler.compilation import Compilation, CompileOptions, FusedProgram
from shardc.dynamo import program_cache
from shardc.dynamo.explanations import is_explained, note_fused
from shardc.dynamo.settings import Settings
from shardc.frontend.graph.aot_graph import ImportedGraph, import_graph
from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.lower.table import lowered_targets
from shardc.passes.manager.base import Pass
from shardc.passes.manager.pass_pipelines import build, run
from shardc.runtime.kernels.loaders import Kernels
from shardc.runtime.report import logs

PIPELINE = "torch-group-queries,torch-share"
"""Passes that an imported graph goes through before it is fused."""


@dataclass
class Compiled:
    """Text of a graph's program, with its kernels. ``is_whole``: whether it is in the program cache."""

    text: str
    library: Kernels | None
    is_whole: bool


def compile_program(
    settings: Settings,
    constraints: FusionConstraints | None,
    phase: str,
    graph: GraphModule,
    target: Target | None,
    device: torch.device,
    key: str,
) -> Compiled:
    """Compile a graph, and store its program under ``key`` unless later processes must compile it again.

    Raises GraphNotCompiled, FusionRefused.
    """
    constraints = settings.constraints() if constraints is None else constraints
    imported = _imported(graph, phase, target is not None)
    if target is None:
        fused = FusedProgram(imported.module, is_fused=not settings.kernels.fuse)
    else:
        fused = _fused(graph, phase, imported, target, _options(settings, constraints, target, device))
        took = ("fusion", fused.fuse_s), ("kernels", fused.compile_s)
        logs.seconds(took, f"torch.compile, {phase}")
        note_fused(phase, fused.module, fused.report)
    is_whole, library = fused.is_whole and not (target and constraints.unmatched), fused.kernels
    relaid = bool(library or fused.libraries)
    pooled = target is not None and target.pooled
    text = emit_graph(fused.module, imported.outputs, imported.writes, imported.strides, pooled, relaid)
    if is_whole:  # otherwise the next process must compile again and repeat the warnings
        program_cache.store(key, text, target.backend if target else "", fused.path)
    return Compiled(text, library, is_whole)


def _imported(graph: GraphModule, phase: str, is_fused: bool) -> ImportedGraph:
    imported = import_graph(graph, phase, lowered_targets() if is_fused else ())
    run(imported.module, _passes(), verify_each=False)
    return imported


def _fused(
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


@cache
def _passes() -> list[Pass]:
    return build(PIPELINE)
