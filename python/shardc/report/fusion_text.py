"""Fusion report as text: kernels, pairs of ops with the reason for fusing them or not, unfused calls."""

from __future__ import annotations

from shardc.diagnostics.text import table
from shardc.passes.fuse.grouping.explain import FusionReport, Kernel, Op
from shardc.passes.fuse.grouping.group import LAUNCH_BYTES
from shardc.report.source_lines import shown


def render(report: FusionReport) -> str:
    """Return the whole report, with a section for each of its parts."""
    alone = "shares no kernel: see the pairs above" if report.pairs else "shares no kernel"
    pairs = [(*_named(a), "+", *_named(b), str(decision)) for a, b, decision in report.pairs]
    choices = [(*_named(op), "a kernel" if v.generated else "a call", v.why) for op, v in report.choices]
    staying = [(*_named(op), op.why or alone) for op in report.staying]
    sections = [
        [summary(report)],
        _kernels(report),
        _section("pairs of calls that were considered, and the decision", pairs),
        _section("matmuls and attention: number, target, line, choice, reason", choices),
        _section("calls outside of kernels: number, target, line, reason", staying),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def effect(report: FusionReport) -> str:
    """Return one line on the effect of the edges that the user forbade or forced."""
    return "; ".join(filter(None, (_constrained(report, False), _constrained(report, True))))


def _constrained(report: FusionReport, fused: bool) -> str:
    """Return text on pairs that are not fused because the user forbade it, or (``fused``) are forced."""
    found = [d for _, _, d in report.pairs if d.constrained and d.fused == fused]
    if not found:
        return ""
    saved_bytes = sum(d.saved_bytes - LAUNCH_BYTES for d in found)
    saved = f"{len(found):,} launches and {saved_bytes:,} bytes of memory"
    if fused:
        return f"forced: {len(found)} pairs of calls share a kernel, which saves {saved} traffic"
    return f"forbidden: {len(found)} pairs of calls do not share a kernel, which would save {saved} traffic"


def summary(report: FusionReport) -> str:
    """Return one line: how many calls became kernels, and what that saves."""
    fused = len({op.number for kernel in report.kernels for op in kernel.ops})
    calls = f"{len(report.kernels)} kernels replace {fused} of {fused + len(report.staying)} calls"
    moved = f"{report.before.moved_bytes:,} bytes of memory traffic {report.after.moved_bytes:,}"
    return f"{calls}: {report.before.launches:,} launches become {report.after.launches:,}, {moved}"


def _kernels(report: FusionReport) -> list[str]:
    """Return lines on each kernel with its calls, and on how many are tuned."""
    if not report.kernels:
        return []
    lines = ["kernels: name, bytes read and written, launches and bytes saved, calls"]
    heads = table([_figures(kernel) for kernel in report.kernels], right=(1, 2, 3, 4))
    for line, kernel in zip(heads, report.kernels, strict=True):
        lines += [line, f"  tuned: {kernel.tuned}"] if kernel.tuned else [line]
        lines += [f"  {row}" for row in table([_named(op) for op in kernel.ops])]
    count, tuned = len(report.kernels), sum(bool(kernel.tuned) for kernel in report.kernels)
    said = f"{tuned} of {count} kernels were tuned, {count - tuned} have the default"
    return [*lines, f"configurations: {said} (shardc tune measures others)"]


def _figures(kernel: Kernel) -> tuple[str, ...]:
    apart, traffic = kernel.apart, kernel.traffic
    saved = apart.launches - traffic.launches, apart.moved_bytes - traffic.moved_bytes
    return kernel.name, *(f"{n:,}" for n in (traffic.read_bytes, traffic.written_bytes, *saved))


def _named(op: Op) -> tuple[str, str, str]:
    return op.number, op.target, shown(op.where)


def _section(title: str, rows: list[tuple[str, ...]]) -> list[str]:
    return [title, *table(rows)] if rows else []
