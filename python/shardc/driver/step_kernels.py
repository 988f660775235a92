"""A rank program with its groups of ops as compiled kernels: level 4."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from torch_mlir import ir

from shardc.backends.body.extract import kernels
from shardc.backends.cpu.compile import build_library
from shardc.backends.measure.contractions import measured_form
from shardc.dialects.collection import collection_paused
from shardc.driver.arguments import world_size
from shardc.driver.compiler import Compiled
from shardc.driver.kernels import can_compile, failing, say_once
from shardc.driver.levels import copy_module
from shardc.driver.piece_contest import MeasuredMatmuls
from shardc.passes.extern.kern_extern import extern_module
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.passes.fuse.piece import Choose

log = logging.getLogger(__name__)


def fuse_step(compiled: Compiled, numerics: str = "fused") -> None:
    """Give ``compiled`` its level 4 and the library of its kernels; nothing if no ops share a kernel.

    Groups whose kernels do not compile stay calls of ATen, and a warning says so.
    """
    with collection_paused():
        started = time.perf_counter()
        module, library, fuse_s = _fused(compiled.rank_module, numerics)
        total_s = time.perf_counter() - started
    compiled.seconds |= {"kern-fuse": fuse_s, "kernels": total_s - fuse_s}
    if library is not None:
        compiled.kernel_module, compiled.library = module, library
        if compiled.levels:
            compiled.levels.keep("4-kernel", module)


def _fused(module: ir.Module, numerics: str) -> tuple[ir.Module, Path | None, float]:
    """A fused copy of ``module``, its library, and the seconds that fusing took."""
    started = time.perf_counter()
    if not can_compile():
        return module, None, time.perf_counter() - started
    matmuls = step_matmuls(numerics)
    fused = copy_module(module)
    try:
        fuse_module(fused, numerics, matmuls=matmuls)
        choose_libraries(fused, numerics)
        fuse_s = time.perf_counter() - started
        return fused, _library(fused), fuse_s
    except Exception:  # whatever went wrong in there, ATen has every op
        log.debug("kernels of a step could not be compiled", exc_info=True)
    try:
        without = failing(fused)
        fused = copy_module(module)
        fuse_module(fused, numerics, without=without, matmuls=matmuls)
        choose_libraries(fused, numerics)
        return fused, _library(fused), time.perf_counter() - started
    except Exception as error:
        log.debug("kernels of a step could not be compiled", exc_info=True)
        say_once("all groups of the step", error)
        return module, None, time.perf_counter() - started


def is_measured() -> bool:
    """Whether it is measured here who computes the matmuls of a step.

    All ranks must compute them alike, or what they keep in copies would drift apart: those of one host share what was
    measured. Where a step is compiled on several hosts at once, matmuls stay ATen's.
    """
    return (world_size() or 1) <= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def step_matmuls(numerics: str) -> str | Choose:
    """What decides on the matmuls of a step, as ``fuse_module`` takes it."""
    return MeasuredMatmuls(numerics) if is_measured() else "extern"


def choose_libraries(module: ir.Module, numerics: str) -> None:
    """Matmuls that are in no kernel become calls of whichever library was measured to be faster here."""
    if is_measured():
        extern_module(module, measured_form, numerics)


def _library(module: ir.Module) -> Path | None:
    return build_library(module) if kernels(module) else None
