"""Log topic ``fusion``: the kernels, and the calls that are not fused, with reasons."""

from __future__ import annotations

import logging

from shardc.passes.fuse.grouping.explain import FusionReport
from shardc.report.fusion_text import render, summary
from shardc.report.source_lines import shown
from shardc.runtime.report.logs import FUSION


def log_fusion(title: str, report: FusionReport | None) -> None:
    """Log each kernel and each call that is not fused; with ``+fusion`` the whole report instead."""
    if report is None or not FUSION.isEnabledFor(logging.INFO):
        return
    if FUSION.isEnabledFor(logging.DEBUG):
        FUSION.debug("%s: %s", title, render(report))
        return
    FUSION.info("%s: %s", title, summary(report))
    for kernel in report.kernels:
        ops = ", ".join(dict.fromkeys(f"{op.target} at {shown(op.where)}" for op in kernel.ops))
        FUSION.info("kernel %s of %s", kernel.name, ops)
    for op, verdict in report.choices:
        if not verdict.generated:
            FUSION.info("%s at %s is refused: %s", op.target, shown(op.where), verdict.why)
    for op in report.staying:
        why = op.why or "it shares no kernel with another"
        FUSION.info("%s at %s stays a call: %s", op.target, shown(op.where), why)
