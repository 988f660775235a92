"""Estimated times of kernels and calls on a device, compared with the roofline of its peak rates."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.backends.base import Target
from shardc.backends.estimate import Estimated
from shardc.compiler.modelled_regions import us_text
from shardc.diagnostics.text import size_text, table

_COLUMNS = ("", "in a step", "FLOP", "moved", "estimated", "roofline", "of it", "bound by")


def roofline(found: Sequence[Estimated], target: Target) -> list[str]:
    """Return a line for each kernel and each group of equal calls, with one's time; the last is the step."""
    groups: dict[tuple[object, ...], list[Estimated]] = {}
    for part in sorted(found, key=lambda part: not part.is_kernel):
        key = (part.name, part.is_kernel, part.estimate.flops, part.estimate.moved_bytes)
        groups.setdefault(key, []).append(part)
    rows = [_COLUMNS, *(_row(members) for members in groups.values())]
    seconds = sum(part.times * part.estimate.seconds for part in found)
    least = sum(part.times * part.estimate.roofline_s for part in found)
    times = str(sum(part.times for part in found))
    rows.append(("total", times, "", "", us_text(seconds), us_text(least), _part(least, seconds), ""))
    title = f"estimates for {target.name} ({target.rates()}), without a trial"
    parts = "kernels, then calls of ATen, of which each takes"
    return [f"{title}: {parts}", *table(rows, right=(1, 2, 3, 4, 5, 6))]


def _row(members: Sequence[Estimated]) -> tuple[str, ...]:
    first, times = members[0], sum(part.times for part in members)
    e = first.estimate
    seconds = sum(part.times * part.estimate.seconds for part in members) / times
    flops = f"{e.flops:.2e}" if e.flops else "-"
    shown = (size_text(e.moved_bytes), us_text(seconds), us_text(e.roofline_s), _part(e.roofline_s, seconds))
    return first.name, f"{times} x", flops, *shown, e.bound


def _part(least: float, seconds: float) -> str:
    return f"{100 * least / seconds:.0f}%" if seconds else "-"
