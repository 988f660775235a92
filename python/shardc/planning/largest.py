"""The largest batch, or the longest sequence, that fits: few compiles, as memory grows evenly in both."""

from __future__ import annotations

from collections.abc import Callable


def largest(free: Callable[[int], float], most: int) -> int:
    """The largest number from 1 to ``most`` for which ``free``, which falls, is at least 0; 0 if none is.

    What is asked next lies where the line through the nearest two that are known crosses 0. Where that leaves
    more than half of what is open, as memory need not fall evenly, the middle is asked.
    """
    known = {1: free(1)}
    if known[1] < 0:
        return 0
    fits, too_much = 1, most + 1
    halve = False
    while fits + 1 < too_much:
        open_before = too_much - fits
        at = _middle(fits, too_much) if halve else _crossing(known, fits, too_much)
        known[at] = free(at)
        fits, too_much = (at, too_much) if known[at] >= 0 else (fits, at)
        # where nothing is too much yet, there is no middle to ask
        halve = too_much in known and 2 * (too_much - fits) > open_before
    return fits


def _middle(fits: int, too_much: int) -> int:
    return (fits + too_much) // 2


def _crossing(known: dict[int, float], fits: int, too_much: int) -> int:
    """Between the two, where a line crosses 0: through both, or through the last two that fit."""
    before = max((n for n in known if n < fits), default=None)
    if too_much in known:
        start, end = fits, too_much
    elif before is not None:
        start, end = before, fits
    else:
        return min(2 * fits, too_much - 1)
    fall = (known[start] - known[end]) / (end - start)
    wanted = start + int(known[start] // fall) if fall > 0 else 4 * fits
    return max(fits + 1, min(wanted, max(4 * fits, 4096) if before else wanted, too_much - 1))
