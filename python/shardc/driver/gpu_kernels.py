"""A rank program with its groups of ops as Triton kernels for a GPU that need not be here: level 4."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch_mlir import ir

from shardc.backends.body.extract import kernel_name, kernels
from shardc.backends.triton.compile import Compiled as CompiledKernel
from shardc.backends.triton.compile import check_triton, compile_kernels
from shardc.backends.triton.emit import emit_kernel
from shardc.backends.triton.emitted import Emitted
from shardc.backends.triton.folder import write_folder
from shardc.backends.triton.targets import Target, find_target
from shardc.diagnostics.base import ShardcError
from shardc.dialects.collection import collection_paused
from shardc.dialects.location import source_line
from shardc.driver.compiler import Compiled
from shardc.driver.fusion_record import FusionRecord
from shardc.driver.gpu_estimates import Estimator
from shardc.driver.kernels import say_once
from shardc.driver.piece_model import ModelledMatmuls
from shardc.driver.step_kernels import fuse_copy
from shardc.driver.tuned import use_tuned
from shardc.passes.fuse.piece import Choose, EveryPiece


def fuse_step_for(
    compiled: Compiled,
    target: str,
    numerics: str = "fused",
    forbid: Sequence[str] = (),
    force: Sequence[str] = (),
    matmuls: str = "auto",
    processes: int = 2,
) -> None:
    """Give ``compiled`` its level 4 and a folder of Triton kernels for ``target``, with their binaries; nothing if no
    ops share a kernel.

    Groups whose kernels cannot be made stay calls of ATen, and a warning says so. ``forbid`` and ``force`` are edges of
    :mod:`shardc.passes.fuse.wishes`. ``matmuls``: ``auto`` has those and attention in kernels that are estimated to be
    faster there, or what STEP_MATMULS says. Products of f32 are of tf32 where torch is set to that now.

    Raises:
        UnknownGpuTarget, TritonMissing, TritonTooOld, BadFusionEdge, NoSuchFusionEdge, FusionRefused.
    """
    gpu, tf32 = check_gpu(target), is_tf32()
    started = time.perf_counter()
    folder = tempfile.TemporaryDirectory(prefix="shardc-kernels-")
    wished = FusionRecord(numerics, tuple(forbid), tuple(force), matmuls=matmuls, tf32=tf32)
    choose = choose_for(gpu, wished)
    with collection_paused():
        while True:
            module, compiled.fusion_effect = fuse_copy(compiled.unfused, wished, choose)
            made, failed = make_kernels(module, gpu, Path(folder.name), processes, tf32)
            without = tuple(sorted(failed | {*wished.without}))
            if without == wished.without:
                break
            wished = replace(wished, without=without)
    compiled.seconds |= {"kernels": time.perf_counter() - started}
    if not made:
        return
    write_folder(made, Path(folder.name))
    compiled.kernel_module, compiled.library, compiled.target = module, Path(folder.name), target
    compiled.folder = folder
    if compiled.levels:
        compiled.levels.keep("4-kernel", module)


def check_gpu(target: str) -> Target:
    """The target. Raises UnknownGpuTarget, TritonMissing, TritonTooOld where nothing can be compiled for it."""
    found = find_target(target)
    check_triton(target)
    return found


def choose_for(target: Target, wished: FusionRecord) -> str | Choose:
    """What decides on matmuls and attention, as ``fuse_module`` takes it."""
    return by_model(target, wished.numerics, wished.tf32) if wished.matmuls == "auto" else wished.matmuls


def by_model(target: Target, numerics: str, tf32: bool) -> Choose:
    """What has matmuls and attention in kernels that are estimated to be faster there."""
    return EveryPiece(ModelledMatmuls(Estimator(target, tf32), numerics))


def is_tf32() -> bool:
    """Whether torch is set to compute products of f32 in tf32."""
    return torch.get_float32_matmul_precision() != "highest"


def make_kernels(
    module: ir.Module, target: Target, folder: Path, processes: int, tf32: bool = False
) -> tuple[list[CompiledKernel], frozenset[str]]:
    """The kernels of ``module``, compiled, and the calls (``kern.calls``) of those that could not be."""
    use_tuned(module, target.name)
    emitted: list[Emitted] = []
    named = {kernel_name(op): op for op in kernels(module)}
    failed: dict[str, Exception] = {}
    for name, op in named.items():
        try:
            emitted.append(emit_kernel(op, target, tf32=tf32))
        except ShardcError as error:
            failed[name] = error
    made = compile_kernels(emitted, [target], folder, processes)
    failed |= {c.kernel.name: c.error for c in made if c.error is not None}
    for name, error in failed.items():
        say_once(", ".join(dict.fromkeys(_texts(named[name], "kern.ops"))), error, source_line(named[name].location))
    calls = (_texts(op, "kern.calls") for op in kernels(module) if kernel_name(op) in failed)
    return made, frozenset(call for group in calls for call in group)


def _texts(op: ir.Operation, name: str) -> list[str]:
    return [ir.StringAttr(text).value for text in op.attributes[name]]
