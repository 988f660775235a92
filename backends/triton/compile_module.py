"""Compilation of a module's kernels for a GPU."""

from __future__ import annotations

from pathlib import Path

from torch_mlir import ir

from shardc.backends.base import CompiledKernels
from shardc.backends.body.extract import kernel_name, kernels
from shardc.backends.triton.aot import archive
from shardc.backends.triton.aot.compile import Compiled, compile_kernels
from shardc.backends.triton.aot.folder import write_folder
from shardc.backends.triton.emit.emit import emit_kernel
from shardc.backends.triton.emit.emitted import Emitted
from shardc.cache.scratch import scratch
from shardc.cost.machine import Gpu
from shardc.diagnostics.base import ShardcError

PROCESSES = 4
"""Number of processes that compile a module's kernels."""


def compile_module(module: ir.Module, gpu: Gpu, tf32: bool) -> CompiledKernels:
    """Compile the kernels of ``module`` to a folder of modules and binaries in the cache."""
    with scratch() as name:
        made, errors = try_kernels(module, gpu, Path(name), PROCESSES, tf32)
        if errors or not made:
            return CompiledKernels(errors=errors)
        write_folder(made, Path(name))
        return CompiledKernels(archive.keep(Path(name)))


def try_kernels(
    module: ir.Module, gpu: Gpu, folder: Path, processes: int, tf32: bool = False
) -> tuple[list[Compiled], dict[str, ShardcError]]:
    """Compile the kernels of ``module``; return those that compiled, and name -> error of the others."""
    emitted: list[Emitted] = []
    failed: dict[str, ShardcError] = {}
    for name, op in {kernel_name(op): op for op in kernels(module)}.items():
        try:
            emitted.append(emit_kernel(op, gpu, tf32=tf32))
        except ShardcError as error:
            failed[name] = error
    made = compile_kernels(emitted, [gpu], folder, processes)
    return made, failed | {c.kernel.name: c.error for c in made if c.error is not None}
