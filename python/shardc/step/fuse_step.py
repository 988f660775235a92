"""Fusion of a rank program's ops into compiled kernels: level 4."""

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
    """Return the target of a step's kernels: the named one, or that of this process's device.

    Return None, with a warning that says why, if kernels cannot be compiled for this device. Raises
    UnknownTarget, and for a named target what :meth:`Target.check` raises.
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
    """Add level 4 and its kernels to ``compiled``, unless no ops share a kernel.

    The default ``target`` is this process's device. Groups whose kernels cannot be compiled stay calls of
    ATen, with a warning; the function then returns False. Raises BadFusionEdge, NoSuchFusionEdge,
    FusionRefused.
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
    """Return the options by which this process compiles a step's kernels.

    All ranks must use the same kernels, or replicated values would drift apart. Ranks of one host share their
    measurements. If several hosts compile a step, nothing is measured, and tuning databases are not used.
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
    """Return the step at level 4, without compiling its kernels. Raises what fusing raises."""
    return _compilation(compiled, target, step_options(target, "fused", matmuls, FusionConstraints())).fuse()


def check_no_force(force: Sequence[str], why: str) -> None:
    """Raise FusionRefused if any edge is forced, since there are no kernels. ``why``: the reason for that."""
    for edge in force:
        raise FusionRefused(edge=edge, why=why)


def check_matched(constraints: FusionConstraints) -> None:
    """Raise NoSuchFusionEdge for an edge that matches no pair of ops in the program."""
    for edge in sorted(constraints.unmatched):
        raise NoSuchFusionEdge(edge=edge)
