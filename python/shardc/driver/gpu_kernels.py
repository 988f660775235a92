"""A rank program with its groups of ops as Triton kernels for a GPU that need not be here: level 4."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from torch_mlir import ir

from shardc.backends.body.extract import kernel_name, kernels
from shardc.backends.triton.compile import Compiled as CompiledKernel
from shardc.backends.triton.compile import check_triton, compile_kernels
from shardc.backends.triton.emit import emit_kernel
from shardc.backends.triton.emitted import Emitted
from shardc.backends.triton.targets import Target, find_target
from shardc.diagnostics.base import ShardcError
from shardc.dialects.collection import collection_paused
from shardc.dialects.location import source_line
from shardc.driver.compiler import Compiled
from shardc.driver.kernels import say_once
from shardc.driver.levels import copy_module
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.runtime.triton_kernels import CACHE

log = logging.getLogger(__name__)


def fuse_step_for(compiled: Compiled, target: str, numerics: str = "fused", processes: int = 2) -> None:
    """Give ``compiled`` its level 4 and a folder of Triton kernels for ``target``, with their binaries; nothing if no ops
    share a kernel.

    Groups whose kernels cannot be made stay calls of ATen, and a warning says so.

    Raises:
        UnknownGpuTarget, TritonMissing, TritonTooOld.
    """
    gpu = check_gpu(target)
    started = time.perf_counter()
    folder = tempfile.TemporaryDirectory(prefix="shardc-kernels-")
    with collection_paused():
        module, without = _fused(compiled.rank_module, numerics, frozenset()), frozenset()
        made, failed = _made(module, gpu, Path(folder.name), processes)
        while failed - without:
            without |= failed
            module = _fused(compiled.rank_module, numerics, without)
            made, failed = _made(module, gpu, Path(folder.name), processes)
    compiled.seconds |= {"kernels": time.perf_counter() - started}
    if not made:
        return
    _write(made, Path(folder.name))
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


def _made(module: ir.Module, target: Target, folder: Path, processes: int) -> tuple[list[CompiledKernel], frozenset[str]]:
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


def _write(made: Sequence[CompiledKernel], folder: Path) -> None:
    """Leaves in ``folder`` the modules, and in ``cache`` what Triton looks for before it compiles one: binary and metadata."""
    kept = {Path(f.binary).parent.name: (Path(f.binary), Path(f.metadata)) for c in made for f in c.functions}
    names = {f"{c.kernel.name}.py" for c in made}
    for path in folder.iterdir():
        if path.is_dir() and path.name != CACHE:
            shutil.rmtree(path)
        elif path.is_file() and path.name not in names:
            path.unlink()
    for key in list((folder / CACHE).iterdir()):
        if key.name not in kept:
            shutil.rmtree(key)
            continue
        files = {path.name for path in kept[key.name]}
        for path in key.iterdir():
            if path.name not in files:
                path.unlink()
    figures = {c.kernel.name: [_figures(f) for f in c.functions] for c in made}
    (folder / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")


def _figures(found: object) -> dict[str, object]:
    """What a function takes of the GPU."""
    return {name: value for name, value in vars(found).items() if name not in ("binary", "metadata")}
