"""Makes the program of one graph of ``torch.compile``: loads it from the program cache, or compiles it.

Graphs for the CPU are compiled in a forked child while this process has not loaded MLIR (``child.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.fx import GraphModule

from shardc.backends.base import Target
from shardc.diagnostics.dynamo import GraphNotCompiled
from shardc.dynamo import child, program_cache
from shardc.dynamo.checks import Check
from shardc.dynamo.explanations import is_explained, report_peak
from shardc.dynamo.program import GraphProgram, runner
from shardc.dynamo.program_key import program_key
from shardc.dynamo.settings import Settings
from shardc.frontend.graph.graph_check import check_graph, constants_of
from shardc.frontend.graph.host_scalars import host_scalars
from shardc.frontend.nodes import values_of
from shardc.runtime.kernels.loaders import Kernels
from shardc.runtime.report import progress

if TYPE_CHECKING:
    from shardc.passes.fuse.grouping.constraints import FusionConstraints


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

    ``constraints``: those of ``settings`` if None. ``is_inference``: whether a forward has no backward.
    ``checks``: calls that look at the last results, and may raise errors.

    Raises GraphNotCompiled, FusionRefused.
    """
    device, constants = check_graph(graph), constants_of(graph)
    target = settings.target_of(device)
    key = program_key(graph, phase, f"{settings.cache_key()} {_key(settings, target, device)}")
    text, library, is_whole = _made(settings, constraints, phase, graph, target, device, key)
    report_peak(phase, text, graph, constants, library)
    asked, strict = settings.kernels.cuda_graphs, settings.kernels.fuse
    plan = None
    if asked:
        from shardc.dynamo.cuda_graph_plan import graph_plan

        plan = graph_plan(graph, phase, is_inference, device, len(constants))
    run_, scalars = runner(text, library, device, plan, strict), host_scalars(graph, device)
    kept = key if is_whole else None
    return GraphProgram(run_, kept, device, constants, is_complex(graph), scalars, plan, checks, strict)


def _made(
    settings: Settings,
    constraints: FusionConstraints | None,
    phase: str,
    graph: GraphModule,
    target: Target | None,
    device: torch.device,
    key: str,
) -> tuple[str, Kernels | None, bool]:
    """Return the program's text, its kernels, and whether it is in the program cache."""
    found = None if is_explained() else program_cache.load(key)
    make = partial(_compile, settings, constraints, phase, graph, target, device, key)
    apart = found is None and _compiles_apart(settings, target, device)
    if apart and child.has_done(partial(_compile_and_end, make)):
        found = program_cache.load(key)
    if found is None:
        return make()
    if constraints is not None:
        constraints.unmatched.clear()  # programs are stored only if all constraints were met
    return *found, True


def _compile(
    settings: Settings,
    constraints: FusionConstraints | None,
    phase: str,
    graph: GraphModule,
    target: Target | None,
    device: torch.device,
    key: str,
) -> tuple[str, Kernels | None, bool]:
    # Late import: it loads MLIR, which a start from the caches does not need.
    from shardc.dynamo.compile_program import compile_program

    made = compile_program(settings, constraints, phase, graph, target, device, key)
    return made.text, made.library, made.is_whole


def compile_apart(settings: Settings, joint: GraphModule, compile_parts: Callable[[], None]) -> None:
    """Let a child compile the parts of a joint graph, if graphs like it are compiled in children.

    This process cuts the graph again, and finds the programs on disk. A part that is not there is compiled
    like any graph.
    """
    try:
        device = check_graph(joint)
    except GraphNotCompiled:  # a part may still be without what cannot be compiled
        return
    if _compiles_apart(settings, settings.target_of(device), device):
        child.has_done(partial(_compile_and_end, compile_parts))


def _compile_and_end(make: Callable[[], object]) -> None:
    """Compile in a child, and end the process that generated its machine code."""
    try:
        make()
    finally:
        from shardc.backends.cpu.object_code.object_code import end_worker

        end_worker()


def _compiles_apart(settings: Settings, target: Target | None, device: torch.device) -> bool:
    """Return whether a child may compile: reports stay in this process, and a child cannot use a GPU."""
    runs_here = device.type == "cpu" and (target is None or target.runs_on_host)
    return runs_here and not settings.kernels.has_edges and not is_explained() and child.is_of_use()


def _key(settings: Settings, target: Target | None, device: torch.device) -> str:
    """Return the part of a program's key that the settings do not cover."""
    if target is None:
        return ""
    is_measured = target.local_device() is not None and settings.kernels.is_measured
    measured = target.clock(device).surroundings() if is_measured else "models"
    tf32 = torch.get_float32_matmul_precision() != "highest"
    return f"{target.backend} {target.key()} {tf32} {measured}"


def is_complex(graph: GraphModule) -> bool:
    """Return whether any value of the graph is complex."""
    return any(value.is_complex() for node in graph.graph.nodes for value in values_of(node))
