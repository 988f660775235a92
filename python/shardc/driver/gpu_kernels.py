"""A rank program with its groups of ops as Triton kernels for a GPU that need not be here: level 4."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from shardc.backends.triton.compile import check_triton
from shardc.backends.triton.folder import write_folder
from shardc.backends.triton.targets import TARGETS, Target
from shardc.diagnostics.triton import UnknownGpuTarget
from shardc.dialects.collection import collection_paused
from shardc.driver.compiler import Compiled
from shardc.driver.fusion_record import FusionRecord
from shardc.driver.gpu_compile import is_tf32, make_kernels
from shardc.driver.gpu_contest import device_for, gpu_matmuls
from shardc.driver.gpu_target import gpu_target
from shardc.driver.step_kernels import fuse_copy, is_measured
from shardc.passes.fuse.explain import noting
from shardc.passes.fuse.piece import Verdict
from shardc.runtime.connect import own_device

CPU = "cpu"
"""The target that names this machine's processor."""


def fuse_step_for(
    compiled: Compiled,
    gpu: Target,
    numerics: str = "fused",
    forbid: Sequence[str] = (),
    force: Sequence[str] = (),
    matmuls: str = "auto",
    processes: int = 2,
) -> None:
    """Give ``compiled`` its level 4 and a folder of Triton kernels for ``gpu``, with their binaries; nothing if no
    ops share a kernel.

    Groups whose kernels cannot be made stay calls of ATen, and a warning says so. ``forbid`` and ``force`` are edges of
    :mod:`shardc.passes.fuse.wishes`. ``matmuls``: ``auto`` has those and attention in kernels that are faster there, by
    measurement if such a GPU is here, else by estimate; or what STEP_MATMULS says. Products of f32 are of tf32 where
    torch is set to that now.

    Raises:
        BadFusionEdge, NoSuchFusionEdge, FusionRefused.
    """
    tf32 = is_tf32()
    started = time.perf_counter()
    folder = tempfile.TemporaryDirectory(prefix="shardc-kernels-")
    wished = FusionRecord(numerics, tuple(forbid), tuple(force), matmuls=matmuls, tf32=tf32)
    here = device_for(gpu) if is_measured() else None
    verdicts: dict[str, Verdict] = {}
    choose = noting(gpu_matmuls(gpu, here, numerics, tf32), verdicts) if matmuls == "auto" else matmuls
    with collection_paused():
        while True:
            module, compiled.fusion_effect = fuse_copy(compiled.unfused, wished, choose, for_gpu=True)
            made, failed = make_kernels(module, gpu, Path(folder.name), processes, tf32)
            if here is not None:
                wished.with_verdicts(verdicts).write(module)
            without = tuple(sorted(failed | {*wished.without}))
            if without == wished.without:
                break
            wished = replace(wished, without=without)
    compiled.seconds |= {"kernels": time.perf_counter() - started}
    if not made:
        return
    write_folder(made, Path(folder.name))
    compiled.kernel_module, compiled.library, compiled.target = module, Path(folder.name), gpu.name
    compiled.folder = folder
    if compiled.levels:
        compiled.levels.keep("4-kernel", module)


def is_for_cpu(target: str | None) -> bool:
    """Whether a step's kernels are this machine's CPU's: it was named, or nothing was, and torch sees no GPU."""
    return target == CPU or (target is None and not torch.cuda.is_available())


def step_gpu(target: str | None) -> Target | None:
    """The GPU that a step's kernels are for, the one of this machine unless another is named. None for a CPU, and where a
    warning says why there can be no kernels for the GPU that is here.

    Raises UnknownGpuTarget, TritonMissing, TritonTooOld where nothing can be compiled for the one that is named.
    """
    if is_for_cpu(target):
        return None
    return gpu_target(own_device()) if target is None else check_gpu(target)


def check_gpu(target: str) -> Target:
    """The target. Raises UnknownGpuTarget, TritonMissing, TritonTooOld where nothing can be compiled for it."""
    if target not in TARGETS:
        raise UnknownGpuTarget(target=target, known=", ".join((*TARGETS, CPU)))
    check_triton(target)
    return TARGETS[target]
