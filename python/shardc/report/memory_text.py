"""Memory of programs, as text."""

from __future__ import annotations

from torch_mlir import ir

from shardc.backends.torch.memory.dry_run import Peak
from shardc.compiler.memory import step_peak, step_peaks
from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.diagnostics.text import size_text, table
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.report.pipeline_report import PipelineReport, describe_pipeline
from shardc.runtime.kernels.loaders import Kernels


def peak_text(module: ir.Module, library: Kernels | None = None) -> str:
    """Return one line on a program's :func:`step_peak`."""
    try:
        return _head(step_peak(module, library))
    except PeakUnknown as unknown:
        return f"an unknown amount of memory: {unknown.fields['problem']}"


def explain_pipeline(module: ir.Module, library: Kernels | None = None) -> PipelineReport | None:
    """Report what each rank of a level 3 or 4 pipeline holds, needs and sends; None without a pipeline."""
    op = find_schedule(module)
    if op is None:
        return None
    peaks = step_peaks(module, library)
    sizes = [None if isinstance(peak, PeakUnknown) else peak.size_bytes for peak in peaks]
    return describe_pipeline(module, read_schedule(op), sizes)


def render(peak: Peak | PeakUnknown) -> str:
    """Return text on a peak: its size, its place, and the largest tensors alive then."""
    if isinstance(peak, PeakUnknown):
        return str(peak)
    rows = [
        (size_text(size), line.partition(" = ")[0] if line else "(argument)", _call(line))
        for size, line in peak.held
    ]
    return "\n".join([_head(peak), "the largest of them: bytes, name, call", *table(rows, right=(0,))])


def _head(peak: Peak) -> str:
    """Return one line on a peak: its size, and the call with the user's line."""
    call, given = _call(peak.line) or "the start", size_text(peak.given_bytes)
    place = f"{call} ({peak.where})" if peak.where else call
    return (
        f"at most {size_text(peak.size_bytes)} of tensors at once, including {given} of arguments: in {place}"
    )


def _call(line: str) -> str:
    """Return the callee of a line: ``add_gelu_0`` for ``add_gelu, = add_gelu_0(x, bias)``."""
    return line.rpartition(" = ")[2].partition("(")[0] if " = " in line else line.partition("(")[0]
