"""Report of the outer search, as text."""

from __future__ import annotations

from shardc.diagnostics.text import size_text, table
from shardc.planning.auto.choose import Around
from shardc.planning.verdict import time_text

MOST = 8
"""Choices that are listed."""


def searched(around: Around) -> list[str]:
    """Return lines on the best choices of a search, and on how much better another one could be."""
    rows = [("plan", "estimated step", "at least", "held")]
    for estimate in around.found[:MOST]:
        text = estimate.choice.candidate.text
        seconds, bound = time_text(estimate.seconds), time_text(estimate.bound_s)
        rows.append((text, seconds, bound, size_text(estimate.held_bytes)))
    of = "stages, schedule, mesh, micro-batches and recomputation"
    count = f"{time_text(around.bound_s)} (gap {around.gap:.1%})"
    return [
        f"searched: {around.looked_at} of {around.choices} choices of {of}; by the search's count no plan "
        f"takes less than {count}; the search ended: {around.why}",
        *table(rows, right=(1, 2, 3)),
    ]
