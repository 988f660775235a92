"""Fusion of ``torch.compile``'s graphs under a user's wishes, reported to whoever asks.

``TORCH_LOGS="+shardc.driver.fusion"`` prints the report of every graph, :func:`collect_fusion` hands them over.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

from shardc.diagnostics.dynamo import ShardcFallbackWarning
from shardc.diagnostics.fusion import NoSuchFusionEdge

if TYPE_CHECKING:
    from torch_mlir import ir

    from shardc.passes.fuse.explain import FusionReport, Op
    from shardc.passes.fuse.piece import Choose, Verdict
    from shardc.passes.fuse.wishes import Wishes

log = logging.getLogger(__name__)

Reports: TypeAlias = "list[tuple[str, FusionReport]]"
"""The phase of each graph and what was fused in it."""

_reports: ContextVar[Reports | None] = ContextVar("shardc_fusion_reports", default=None)
_fused: ContextVar[list[ir.Module] | None] = ContextVar("shardc_fused_modules", default=None)
_choices: ContextVar[Sequence[tuple[Op, Verdict]]] = ContextVar("shardc_choices", default=())
_said: set[str] = set()


@contextmanager
def collect_fusion() -> Iterator[Reports]:
    """Graphs compiled inside the block are fused anew, and the list that it gives has their reports."""
    reports: Reports = []
    token = _reports.set(reports)
    try:
        yield reports
    finally:
        _reports.reset(token)


@contextmanager
def collect_modules() -> Iterator[list[ir.Module]]:
    """The same with copies of the fused graphs in place of their reports."""
    modules: list[ir.Module] = []
    token = _fused.set(modules)
    try:
        yield modules
    finally:
        _fused.reset(token)


def is_explained() -> bool:
    """Whether somebody waits for reports or modules, so that graphs must really be fused."""
    return _reports.get() is not None or _fused.get() is not None or log.isEnabledFor(logging.DEBUG)


def note_choices(choices: Sequence[tuple[Op, Verdict]]) -> None:
    """What was decided of a graph before it was cut, once each: the report of its first part has it."""
    _choices.set(tuple(dict.fromkeys((*_choices.get(), *choices))))


def forget_choices() -> None:
    """Of a graph that had no report: a new one begins."""
    _choices.set(())


def fuse(
    wishes: Wishes,
    phase: str,
    target: str | None,
    matmuls: str | Choose,
    module: ir.Module,
    numerics: str,
    exclude: frozenset[ir.Value],
    without: frozenset[str],
    writes: Sequence[tuple[int, int]] = (),
    for_gpu: bool = False,
) -> None:
    """``fuse_module``, and its report where one is wanted, with the configurations of kernels for ``target`` (a GPU's
    name; None for this CPU). Raises FusionRefused.
    """
    # Here, for these load MLIR, which a start from the caches does without.
    from shardc.driver.fusion_report import render
    from shardc.driver.tuned import use_tuned
    from shardc.passes.fuse.explain import explain_fusion, with_tuned
    from shardc.passes.fuse.kern_fuse import fuse_module

    if not is_explained():
        fuse_module(
            module, numerics, exclude, without, wishes=wishes, writes=writes, matmuls=matmuls, for_gpu=for_gpu
        )
        return
    report = explain_fusion(module, numerics, exclude, without, wishes, writes, matmuls, for_gpu)
    use_tuned(module, target)
    report = with_tuned(report, module)
    report.choices[:0] = _choices.get()
    _choices.set(())
    log.debug("%s: %s", phase, render(report))
    reports = _reports.get()
    if reports is not None:
        reports.append((phase, report))
    modules = _fused.get()
    if modules is not None:
        from shardc.driver.levels import copy_module

        modules.append(copy_module(module))


def say_unmatched(wishes: Wishes) -> None:
    """A warning for each edge that fits no two ops of a model's graphs, once a process."""
    for edge in sorted(wishes.unmatched - _said):
        _said.add(edge)
        warnings.warn(str(NoSuchFusionEdge(edge=edge)), ShardcFallbackWarning, stacklevel=2)
