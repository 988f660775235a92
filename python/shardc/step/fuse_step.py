"""A rank program with its groups of ops as compiled kernels: level 4."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from shardc.backends.base import Target
from shardc.backends.registry import find_target, target_for
from shardc.compiler.compilation import Compilation, CompileOptions, FusedProgram
from shardc.compiler.fusion_record import FusionRecord
from shardc.diagnostics.passes.fusion import FusionRefused, NoSuchFusionEdge
from shardc.dialects.collection import collection_paused
from shardc.environment import LOCAL_WORLD_SIZE
from shardc.options.kernels import Kernels
from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.manager.program import copy_module
from shardc.passes.pipeline.ranks.inline_collectives import inlined
from shardc.report.fusion_log import log_fusion
from shardc.report.fusion_text import effect
from shardc.runtime.comm.connect import own_device
from shardc.runtime.report import logs, progress
from shardc.step.arguments import world_size
from shardc.step.levels import KERNEL
from shardc.step.shard import Compiled

DEFAULT = Kernels()


def step_target(name: str | None = None) -> Target | None:
    """What a step's kernels are for: this process's device, unless another target is named. None where a
    warning says why there can be no kernels for the device.

    Raises UnknownTarget, and what :meth:`Target.check` raises for one that is named.
    """
    if name is None:
        return target_for(own_device())
    target = find_target(name)
    target.check()
    return target


@progress.phase("fusion and kernels")
def fuse_step(
    compiled: Compiled, kernels: Kernels = DEFAULT, rounding: str = "fused", target: Target | None = None
) -> bool:
    """Give ``compiled`` its level 4 and the kernels of it, for this process's device if no ``target`` is
    given; nothing if no ops share a kernel.

    Groups whose kernels cannot be made stay calls of ATen, and a warning says so; False is returned then.
    Raises BadFusionEdge, NoSuchFusionEdge, FusionRefused.
    """
    target = target or step_target()
    if target is None:
        return False
    forbid, force = kernels.forbid_fusion, kernels.force_fusion
    constraints = FusionConstraints.of(forbid, force)
    options = step_options(target, rounding, kernels.matmuls, constraints)
    with collection_paused():
        found = _compilation(compiled, target, options).run()
    compiled.seconds |= {"kern-fuse": found.fuse_s, "kernels": found.compile_s}
    if not found.is_fused:
        check_no_force(force, "no kernels can be compiled for this machine")
        return False
    check_matched(constraints)
    compiled.fusion_effect = effect(found.report) if found.report else ""
    log_fusion("compile_step", found.report)
    if found.path is None:
        return found.is_whole
    record = FusionRecord(rounding, forbid, force, tuple(sorted(found.without)), tf32=options.tf32)
    record.with_verdicts(found.verdicts if options.device else {}).write(found.module)
    compiled.library, compiled.target = found.path, target
    compiled.levels.keep(KERNEL, found.module)
    return found.is_whole


def step_options(
    target: Target, rounding: str, matmuls: str, constraints: FusionConstraints
) -> CompileOptions:
    """How a step is compiled in this process.

    All ranks must compute alike, or what they keep in copies would drift apart: those of one host share what
    was measured. Where a step is compiled on several hosts at once, nothing is, and no configuration of one
    host's database is used.
    """
    is_measured = (world_size() or 1) <= LOCAL_WORLD_SIZE.get()
    return CompileOptions(
        rounding,
        matmuls,
        constraints,
        device=target.local_device() if is_measured else None,
        libraries=is_measured,
        tuned=is_measured,
        tf32=torch.get_float32_matmul_precision() != "highest",
        explain=bool(constraints) or logs.FUSION.isEnabledFor(logging.INFO),
    )


def _compilation(compiled: Compiled, target: Target, options: CompileOptions) -> Compilation:
    unfused = inlined(compiled.unfused)
    return Compilation(lambda: copy_module(unfused), target, options)


def fused_step(compiled: Compiled, target: Target, matmuls: str = "auto") -> FusedProgram:
    """The step at level 4, not compiled. Raises what fusing raises."""
    return _compilation(compiled, target, step_options(target, "fused", matmuls, FusionConstraints())).fuse()


def check_no_force(force: Sequence[str], why: str) -> None:
    """Raises FusionRefused for the first of the edges, where there are no kernels."""
    for edge in force:
        raise FusionRefused(edge=edge, why=why)


def check_matched(constraints: FusionConstraints) -> None:
    """Raises NoSuchFusionEdge for an edge that named no two ops of the program."""
    for edge in sorted(constraints.unmatched):
        raise NoSuchFusionEdge(edge=edge)
