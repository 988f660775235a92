"""Log topics ``plan``, ``reshard`` and ``timing`` of a compiled step, and its plan in ``TORCH_TRACE``."""

from __future__ import annotations

import logging

from shardc.diagnostics.text import size_text
from shardc.report.origin_text import origin_text
from shardc.report.plan_report import Report, make_report
from shardc.report.source_lines import shown
from shardc.report.traces.tlparse import PLAN as TRACED_PLAN
from shardc.report.traces.tlparse import log_artefact
from shardc.report.traffic import UPDATE, transfers
from shardc.runtime.first_run import type_text
from shardc.runtime.report.logs import PLAN, RESHARD, seconds
from shardc.step.shard import Compiled


def log_step(compiled: Compiled) -> None:
    """Log the topics that are on. A topic that is off costs nothing."""
    if PLAN.isEnabledFor(logging.INFO):
        _log_plan(compiled)
    if RESHARD.isEnabledFor(logging.INFO):
        _log_reshards(compiled)
    log_artefact(TRACED_PLAN, lambda: _report(compiled).render())
    seconds(compiled.seconds.items(), "compile_step")


def _report(compiled: Compiled) -> Report:
    return make_report(compiled.rank_module, compiled.plan.text, list(compiled.remarks))


def _log_plan(compiled: Compiled) -> None:
    """Log a line for each tensor of the step; with ``+plan`` also the remarks."""
    report = _report(compiled)
    PLAN.info("%s", report.title())
    for role, name, shape, layout, why in report.shardings:
        PLAN.info("%s %s %s is %s: %s", role, name, shape, layout, origin_text(why, name, shape))
    for remark in report.remarks:
        PLAN.debug("%s", remark.render())


def _log_reshards(compiled: Compiled) -> None:
    """Log a line for each collective, in program order."""
    for sent in transfers(compiled.rank_module):
        what = f"{sent.kind} of {type_text(sent.type.shape, sent.type.dtype)} over {'+'.join(sent.axes)}"
        times = "" if sent.times == 1 else f", {sent.times} times"
        size = size_text(sent.bytes_moved)
        RESHARD.info("%s: %s: %s%s at %s", sent.phase or UPDATE, what, size, times, shown(sent.where))
