"""The largest batch, or the longest sequence, that fits: few compiles, as memory grows evenly in both."""

from __future__ import annotations

from collections.abc import Callable


def largest(free: Callable[[int], float], most: int) -> int:
    """The largest number from 1 to ``most`` for which ``free``, which falls, is at least 0; 0 if none is.

    Asked at 1 and 2, then where the line through what is known crosses 0, until two neighbours enclose it.
    """
    known = {1: free(1)}
    if known[1] < 0:
        return 0
    fits, not_there = 1, most + 1
    while fits + 1 < not_there:
        at = _guess(known, fits, not_there)
        known[at] = free(at)
        fits, not_there = (at, not_there) if known[at] >= 0 else (fits, at)
    return fits


def _guess(known: dict[int, float], fits: int, not_there: int) -> int:
    """The next number to ask, between the two."""
    if len(known) == 1:
        return 2
    first, second = sorted(known, key=lambda n: abs(known[n]))[:2]
    fall = (known[first] - known[second]) / (second - first)
    wanted = not_there - 1 if fall <= 0 else first + int(known[first] // fall)
    # the neighbour of what is known to fit is asked last of all
    return max(fits + 1, min(wanted if wanted > fits else fits + 1, not_there - 1))
