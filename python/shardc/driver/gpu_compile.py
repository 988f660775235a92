"""The kernels of a module compiled for a GPU."""

from __future__ import annotations

from pathlib import Path

import torch
from torch_mlir import ir

from shardc.backends.body.extract import kernel_name, kernels
from shardc.backends.triton.compile import Compiled, compile_kernels
from shardc.backends.triton.emit import emit_kernel
from shardc.backends.triton.emitted import Emitted
from shardc.backends.triton.targets import Target
from shardc.diagnostics.base import ShardcError
from shardc.dialects.location import source_line
from shardc.driver.kernels import say_once
from shardc.driver.tuned import use_tuned


def is_tf32() -> bool:
    """Whether torch is set to compute products of f32 in tf32."""
    return torch.get_float32_matmul_precision() != "highest"


def make_kernels(
    module: ir.Module, target: Target, folder: Path, processes: int, tf32: bool = False
) -> tuple[list[Compiled], frozenset[str]]:
    """The kernels of ``module``, compiled, and the calls (``kern.calls``) of those that could not be, of which a
    warning says why.
    """
    made, failed = try_kernels(module, target, folder, processes, tf32)
    named = {kernel_name(op): op for op in kernels(module)}
    for name, error in failed.items():
        say_once(
            ", ".join(dict.fromkeys(_texts(named[name], "kern.ops"))),
            error,
            source_line(named[name].location),
        )
    calls = (_texts(op, "kern.calls") for op in kernels(module) if kernel_name(op) in failed)
    return made, frozenset(call for group in calls for call in group)


def try_kernels(
    module: ir.Module, target: Target, folder: Path, processes: int, tf32: bool = False
) -> tuple[list[Compiled], dict[str, ShardcError]]:
    """The kernels of ``module``, compiled with what tuning found, and by name why others could not be."""
    use_tuned(module, target.name)
    emitted: list[Emitted] = []
    failed: dict[str, ShardcError] = {}
    for name, op in {kernel_name(op): op for op in kernels(module)}.items():
        try:
            emitted.append(emit_kernel(op, target, tf32=tf32))
        except ShardcError as error:
            failed[name] = error
    made = compile_kernels(emitted, [target], folder, processes)
    return made, failed | {c.kernel.name: c.error for c in made if c.error is not None}


def _texts(op: ir.Operation, name: str) -> list[str]:
    return [ir.StringAttr(text).value for text in op.attributes[name]]
