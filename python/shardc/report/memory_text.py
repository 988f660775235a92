"""What programs need of memory, in words."""

from __future__ import annotations

from torch_mlir import ir

from shardc.backends.torch.memory.dry_run import Peak
from shardc.compiler.memory import step_peak, step_peaks
from shardc.diagnostics.memory import PeakUnknown
from shardc.diagnostics.text import size_text, table
from shardc.dialects.pipe.schedule_op import find_schedule
from shardc.report.pipeline_report import PipelineReport, describe_pipeline
from shardc.runtime.kernels.loaders import Kernels


def said_peak(module: ir.Module, library: Kernels | None = None) -> str:
    """:func:`step_peak` in a line."""
    try:
        return head(step_peak(module, library))
    except PeakUnknown as unknown:
        return f"what is not known: {unknown.fields['problem']}"


def explain_pipeline(module: ir.Module, library: Kernels | None = None) -> PipelineReport | None:
    """What each rank of a pipeline's program of level 3 or 4 holds, needs at most and sends; None
    of another.
    """
    if find_schedule(module) is None:
        return None
    peaks = step_peaks(module, library)
    return describe_pipeline(
        module, [None if isinstance(peak, PeakUnknown) else peak.size_bytes for peak in peaks]
    )


def render(peak: Peak | PeakUnknown) -> str:
    """A peak in words: how much, where, and the largest tensors that live then."""
    if isinstance(peak, PeakUnknown):
        return str(peak)
    rows = [
        (size_text(size), line.partition(" = ")[0] if line else "(given)", shown_call(line))
        for size, line in peak.held
    ]
    return "\n".join([head(peak), "the largest of them: bytes, name, call", *table(rows, right=(0,))])


def head(peak: Peak) -> str:
    """How much, and where."""
    sizes = (
        f"at most {size_text(peak.size_bytes)} of tensors at once, with {size_text(peak.given_bytes)} "
        f"that it is given"
    )
    return f"{sizes}: in {place(peak)}"


def place(peak: Peak) -> str:
    """The call where a peak is reached, with the user's line."""
    call = shown_call(peak.line) or "the start"
    return f"{call} ({peak.where})" if peak.where else call


def shown_call(line: str) -> str:
    """``add_gelu_0`` for ``add_gelu, = add_gelu_0(x, bias)``."""
    return line.rpartition(" = ")[2].partition("(")[0] if " = " in line else line.partition("(")[0]
