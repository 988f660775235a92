"""Reports on fusion and memory of ``torch.compile``'s graphs, for those who ask.

``TORCH_LOGS="+shardc.compiler.compilation"`` prints the fusion of every graph, ``"+shardc.compiler.memory"``
its peak. :func:`collect_fusion` and :func:`collect_peaks` collect them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from shardc.compiler.warn_once import warn_once
from shardc.diagnostics.passes.fusion import NoSuchFusionEdge
from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.runtime.report.logs import FUSION

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule
    from torch_mlir import ir

    from shardc.backends.torch.memory.dry_run import Peak
    from shardc.passes.fuse.grouping.constraints import FusionConstraints
    from shardc.passes.fuse.grouping.explain import FusionReport, Op
    from shardc.passes.fuse.grouping.region import Verdict
    from shardc.runtime.kernels.loaders import Kernels

T = TypeVar("T")

fusion_log = logging.getLogger("shardc.compiler.compilation")
memory_log = logging.getLogger("shardc.compiler.memory")

Reports: TypeAlias = "list[tuple[str, FusionReport]]"
"""Each graph's phase and fusion report."""

_reports: ContextVar[Reports | None] = ContextVar("shardc_fusion_reports", default=None)
_fused: ContextVar[list[ir.Module] | None] = ContextVar("shardc_fused_modules", default=None)
_choices: ContextVar[Sequence[tuple[Op, Verdict]]] = ContextVar("shardc_choices", default=())


@contextmanager
def _collected(variable: ContextVar[list[T] | None]) -> Iterator[list[T]]:
    """Yield a list that ``variable`` holds inside the block."""
    found: list[T] = []
    token = variable.set(found)
    try:
        yield found
    finally:
        variable.reset(token)


def collect_fusion() -> AbstractContextManager[Reports]:
    """Collect fusion reports of the graphs compiled inside the block, bypassing the program cache."""
    return _collected(_reports)


def collect_modules() -> AbstractContextManager[list[ir.Module]]:
    """Collect copies of the fused graphs compiled inside the block, bypassing the program cache."""
    return _collected(_fused)


def is_explained() -> bool:
    """Return whether reports or modules are collected, so that graphs must not come from the cache."""
    is_logged = any(log.isEnabledFor(logging.DEBUG) for log in (fusion_log, FUSION))
    return is_logged or _reports.get() is not None or _fused.get() is not None


def note_choices(choices: Sequence[tuple[Op, Verdict]]) -> None:
    """Record choices made on a joint graph before it is split; they go to the report of its first part."""
    _choices.set(tuple(dict.fromkeys((*_choices.get(), *choices))))


def forget_choices() -> None:
    """Discards recorded choices when a new graph starts without a report."""
    _choices.set(())


def note_fused(phase: str, module: ir.Module, report: FusionReport | None) -> None:
    """Log or collect a graph's fusion report, if asked for."""
    if report is None:
        return
    # Late import: it loads MLIR, which a start from the caches does not need.
    from shardc.passes.manager.program import copy_module
    from shardc.report.fusion_log import log_fusion
    from shardc.report.fusion_text import render

    report.choices[:0] = _choices.get()
    _choices.set(())
    if fusion_log.isEnabledFor(logging.DEBUG):
        fusion_log.debug("%s: %s", phase, render(report))
    log_fusion(f"torch.compile, {phase}", report)
    reports, modules = _reports.get(), _fused.get()
    if reports is not None:
        reports.append((phase, report))
    if modules is not None:
        modules.append(copy_module(module))


Peaks: TypeAlias = "list[tuple[str, Peak | PeakUnknown]]"
"""Each graph's phase, and its peak or the reason why that is not known."""

_peaks: ContextVar[Peaks | None] = ContextVar("shardc_peaks", default=None)


def collect_peaks() -> AbstractContextManager[Peaks]:
    """Collect the peaks of the graphs that are compiled inside the block."""
    return _collected(_peaks)


def report_peak(
    phase: str, text: str, graph: GraphModule, constants: Sequence[torch.Tensor], library: Kernels | None
) -> None:
    """Log or collect the peak of a graph's program, if asked for."""
    peaks = _peaks.get()
    if peaks is None and not memory_log.isEnabledFor(logging.DEBUG):
        return
    from shardc.compiler.memory import graph_peak
    from shardc.report.memory_text import render

    try:
        peak: Peak | PeakUnknown = graph_peak(phase, text, graph, constants, library)
    except PeakUnknown as unknown:
        peak = unknown
    memory_log.debug("%s: %s", phase, render(peak))
    if peaks is not None:
        peaks.append((phase, peak))


def warn_unmatched(constraints: FusionConstraints) -> None:
    """Warn of each edge that matches no two ops of a model's graphs, once per process."""
    for edge in sorted(constraints.unmatched):
        warn_once(NoSuchFusionEdge(edge=edge))
