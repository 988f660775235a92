"""How much more trials of a task are expected to gain: what divides the budget, and what ends a search."""

from __future__ import annotations

import math
from collections.abc import Sequence

FIRST = 0.3
"""Expected share of its time that a kernel loses by tuning that was never tried."""
TAIL = 8
"""The fastest trials, at most, that the tail is read from; no more than a quarter of all."""
FEWEST = 3
"""Trials that make a tail."""


def expected_gain(ratios: Sequence[float], more: int) -> float:
    """The share of the best time that ``more`` trials are expected to save, after ``ratios`` (in order;
    ``inf`` for what failed).

    The logarithms of the fastest ratios are taken to have an exponential tail (Pickands 1975, peaks over a
    threshold) of scale ``s``, their mean distance to the threshold: ``n`` trials after ``N`` move the best by
    ``s log(1 + n/N)``. Half of what the last trials found is expected again.
    """
    measured = sorted(math.log(r) for r in ratios if r > 0 and math.isfinite(r))
    if not ratios:
        return FIRST
    if len(measured) < FEWEST:
        return FIRST * more / (len(ratios) + more)
    count = max(2, min(TAIL, len(measured) // 4))
    scale = sum(measured[count] - value for value in measured[:count]) / count
    tail = scale * math.log1p(more / len(ratios))
    return 1.0 - math.exp(-max(tail, _lately(ratios, more)))


def _lately(ratios: Sequence[float], more: int) -> float:
    """Half of what the last ``more`` trials took off the logarithm of the best ratio."""
    before, now = min(ratios[:-more], default=math.inf), min(ratios)
    return 0.5 * math.log(before / now) if math.isfinite(before) and now > 0 else 0.0
