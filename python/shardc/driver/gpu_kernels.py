"""A rank program with its groups of ops as Triton kernels for a GPU that need not be here: level 4."""

from __future__ import annotations

import logging
import tempfile
import time
from pathlib import Path

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
from shardc.driver.kernels import say_once
from shardc.driver.levels import copy_module
from shardc.passes.fuse.kern_fuse import fuse_module

log = logging.getLogger(__name__)


def fuse_step_for(compiled: Compiled, target: str, numerics: str = "fused", processes: int = 2) -> None:
    """Give ``compiled`` its level 4 and a folder of Triton kernels for ``target``, with their binaries; nothing if no
    ops share a kernel.

    Groups whose kernels cannot be made stay calls of ATen, and a warning says so.

    Raises:
        UnknownGpuTarget, TritonMissing, TritonTooOld.
    """
    gpu = check_gpu(target)
    started = time.perf_counter()
    folder = tempfile.TemporaryDirectory(prefix="shardc-kernels-")
    with collection_paused():
        module, without = _fused(compiled.unfused, numerics, frozenset()), frozenset()
        made, failed = make_kernels(module, gpu, Path(folder.name), processes)
        while failed - without:
            without |= failed
            module = _fused(compiled.unfused, numerics, without)
            made, failed = make_kernels(module, gpu, Path(folder.name), processes)
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


def _fused(module: ir.Module, numerics: str, without: frozenset[str]) -> ir.Module:
    fused = copy_module(module)
    fuse_module(fused, numerics, without=without, matmuls="extern")
    return fused


def make_kernels(
    module: ir.Module, target: Target, folder: Path, processes: int
) -> tuple[list[CompiledKernel], frozenset[str]]:
    """The kernels of ``module``, compiled, and the calls (``kern.calls``) of those that could not be."""
    emitted: list[Emitted] = []
    named = {kernel_name(op): op for op in kernels(module)}
    failed: dict[str, Exception] = {}
    for name, op in named.items():
        try:
            emitted.append(emit_kernel(op, target))
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
