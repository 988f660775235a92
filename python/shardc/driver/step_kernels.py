"""A rank program with its groups of ops as compiled kernels: level 4."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch_mlir import ir

from shardc.backends.body.extract import kernels
from shardc.backends.cpu.compile import build_library
from shardc.backends.measure.contractions import measured_form
from shardc.diagnostics.fusion import FusionRefused, FusionWish, NoSuchFusionEdge
from shardc.dialects.collection import collection_paused
from shardc.driver.arguments import world_size
from shardc.driver.compiler import Compiled
from shardc.driver.fusion_record import FusionRecord
from shardc.driver.fusion_report import effect
from shardc.driver.kernels import can_compile, failing, say_once
from shardc.driver.piece_contest import MeasuredMatmuls
from shardc.driver.tuned import use_tuned
from shardc.passes.extern.kern_extern import extern_module
from shardc.passes.fuse.explain import explain_fusion
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.passes.fuse.piece import Choose
from shardc.passes.pipeline.inline_collectives import inlined
from shardc.passes.program import copy_module

log = logging.getLogger(__name__)


def fuse_step(
    compiled: Compiled,
    numerics: str = "fused",
    forbid: Sequence[str] = (),
    force: Sequence[str] = (),
    matmuls: str = "auto",
) -> None:
    """Give ``compiled`` its level 4 and the library of its kernels; nothing if no ops share a kernel.

    Groups whose kernels do not compile stay calls of ATen, and a warning says so. ``forbid`` and ``force`` are edges of
    :mod:`shardc.passes.fuse.wishes`, ``matmuls`` one of STEP_MATMULS. Raises BadFusionEdge, NoSuchFusionEdge, FusionRefused.
    """
    wished = FusionRecord(numerics, tuple(forbid), tuple(force), matmuls=matmuls)
    with collection_paused():
        started = time.perf_counter()
        fused = _fused(compiled.unfused, wished)
        total_s = time.perf_counter() - started
    compiled.seconds |= {"kern-fuse": fused.fuse_s, "kernels": total_s - fused.fuse_s}
    compiled.fusion_effect = fused.effect
    if fused.library is not None:
        compiled.kernel_module, compiled.library = fused.module, fused.library
        if compiled.levels:
            compiled.levels.keep("4-kernel", fused.module)


@dataclass(frozen=True)
class _Fused:
    """A fused copy of a module, its library, the seconds that fusing took, and what wishes changed, in words."""

    module: ir.Module
    library: Path | None
    fuse_s: float
    effect: str = ""


def _fused(module: ir.Module, wished: FusionRecord) -> _Fused:
    started = time.perf_counter()
    if not can_compile():
        check_no_force(wished.force, "no kernels can be compiled for this machine")
        return _Fused(module, None, time.perf_counter() - started)
    try:
        fused, said = _fuse(module, wished)
        fuse_s = time.perf_counter() - started
    except FusionWish:
        raise
    except Exception as error:  # whatever went wrong in there, ATen has every op
        return _unfused(module, error, started)
    try:
        return _Fused(fused, _library(fused), fuse_s, said)
    except Exception:
        log.debug("kernels of a step could not be compiled", exc_info=True)
    try:
        fused, said = _fuse(module, replace(wished, without=tuple(sorted(failing(fused)))))
        return _Fused(fused, _library(fused), time.perf_counter() - started, said)
    except FusionWish:
        raise
    except Exception as error:
        return _unfused(module, error, started)


def _unfused(module: ir.Module, error: Exception, started: float) -> _Fused:
    log.debug("kernels of a step could not be compiled", exc_info=True)
    say_once("all groups of the step", error)
    return _Fused(module, None, time.perf_counter() - started)


def _fuse(module: ir.Module, wished: FusionRecord) -> tuple[ir.Module, str]:
    """A fused copy for this machine's CPU, and what wishes change of it."""
    fused, said = fuse_copy(module, wished, step_matmuls(wished.numerics, wished.matmuls))
    choose_libraries(fused, wished.numerics)
    return fused, said


def fuse_copy(
    module: ir.Module, wished: FusionRecord, matmuls: str | Choose, for_gpu: bool = False
) -> tuple[ir.Module, str]:
    """A fused copy, which says how it was fused, and what wishes change of it. ``for_gpu`` as for ``fuse_module``.

    Raises BadFusionEdge, NoSuchFusionEdge, FusionRefused.
    """
    module = inlined(module)
    fused, wishes, said = copy_module(module), wished.wishes(), ""
    how = {"without": frozenset(wished.without), "matmuls": matmuls, "for_gpu": for_gpu}
    if wishes:
        report = explain_fusion(fused, wished.numerics, wishes=wishes, **how)
        for edge in sorted(wishes.unmatched):
            raise NoSuchFusionEdge(edge=edge)
        said = effect(explain_fusion(copy_module(module), wished.numerics, **how), report)
    else:
        fuse_module(fused, wished.numerics, **how)
    wished.write(fused)
    return fused, said


def check_no_force(force: Sequence[str], why: str) -> None:
    """Raises FusionRefused for the first of the edges, where there are no kernels."""
    for edge in force:
        raise FusionRefused(edge=edge, why=why)


def is_measured() -> bool:
    """Whether it is measured here who computes the matmuls of a step.

    All ranks must compute them alike, or what they keep in copies would drift apart: those of one host share what was
    measured. Where a step is compiled on several hosts at once, matmuls stay ATen's.
    """
    return (world_size() or 1) <= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def step_matmuls(numerics: str, matmuls: str = "auto") -> str | Choose:
    """What decides on the matmuls of a step, as ``fuse_module`` takes it."""
    if matmuls != "auto":
        return matmuls
    return MeasuredMatmuls(numerics) if is_measured() else "extern"


def choose_libraries(module: ir.Module, numerics: str) -> None:
    """Matmuls that are in no kernel become calls of whichever library was measured to be faster here."""
    if is_measured():
        extern_module(module, measured_form, numerics)


def _library(module: ir.Module) -> Path | None:
    if not kernels(module):
        return None
    if is_measured():  # else hosts whose databases differ would add up in another order
        use_tuned(module)
    return build_library(module)
