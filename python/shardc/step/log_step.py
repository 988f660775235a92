"""Lines of the logs ``plan``, ``reshard`` and ``timing`` about a compiled step."""

from __future__ import annotations

import logging

from shardc.diagnostics.text import size_text
from shardc.report.plan_report import make_report
from shardc.report.source_lines import shown, shown_in
from shardc.report.traffic import transfers
from shardc.runtime.first_run import type_text
from shardc.runtime.report.logs import PLAN, RESHARD, seconds
from shardc.step.shard import Compiled


def log_step(compiled: Compiled) -> None:
    """Log what a user asked for; nothing is computed for a topic that is off."""
    if PLAN.isEnabledFor(logging.INFO):
        _log_plan(compiled)
    if RESHARD.isEnabledFor(logging.INFO):
        _log_reshards(compiled)
    seconds(compiled.seconds.items(), "compile_step")


def _log_plan(compiled: Compiled) -> None:
    """A line for each tensor of the step; with ``+plan`` also the remarks."""
    report = make_report(compiled.rank_module, compiled.plan.text, list(compiled.remarks))
    PLAN.info("%s", report.title())
    for role, name, shape, layout, why in report.shardings:
        PLAN.info("%s %s %s is %s: %s", role, name, shape, layout, shown_in(why))
    for remark in report.remarks:
        PLAN.debug("%s", remark.render())


def _log_reshards(compiled: Compiled) -> None:
    """A line for each collective, in program order."""
    for sent in transfers(compiled.rank_module):
        what = f"{sent.kind} of {type_text(sent.type.shape, sent.type.dtype)} over {'+'.join(sent.axes)}"
        times = "" if sent.times == 1 else f", {sent.times} times"
        size = size_text(sent.bytes_moved)
        RESHARD.info("%s: %s: %s%s at %s", sent.phase or "update", what, size, times, shown(sent.where))
