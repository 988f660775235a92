"""Search for the largest batch, or the longest sequence, that fits. Memory is nearly affine in both."""

from __future__ import annotations

from collections.abc import Callable


def largest(free: Callable[[int], float], most: int) -> int:
    """Return the largest number from 1 to ``most`` with ``free(number) >= 0``; 0 if there is none.

    ``free`` decreases. The next number to try is where the line through the two nearest known points crosses
    0 (regula falsi). If that leaves more than half of the interval, the middle is tried next.
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
        # There is no middle until some number is known to be too large.
        halve = too_much in known and 2 * (too_much - fits) > open_before
    return fits


def _middle(fits: int, too_much: int) -> int:
    return (fits + too_much) // 2


def _crossing(known: dict[int, float], fits: int, too_much: int) -> int:
    """Return where a line crosses 0, between the two: through both, or through the last two that fit."""
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
