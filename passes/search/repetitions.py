"""Repetitions in a sequence of calls or arguments: a model's equal layers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

_SHORTEST = 8
"""Least number of calls of a layer. Shorter repetitions, such as an optimizer's updates of equal weights, are
cheaper to decide one by one."""
_LEAST = 0.1
"""Least fraction of a phase's calls that a sequence of equal layers must have."""
STANDING = 4
"""Number of layers in the program that stand for a longer sequence of equal layers."""


@dataclass(frozen=True)
class Repetition:
    """Repeated sequence of calls, by positions in a phase."""

    first: int
    period: int
    length: int

    @property
    def places(self) -> range:
        return range(self.first, self.first + self.length)


def repetitions(
    keys: Sequence[Hashable], is_few: bool, products: Sequence[bool] = ()
) -> Iterator[Repetition]:
    """Yield the longest repetition in a sequence, then those before and after it, recursively.

    ``is_few``: True if repetitions must have :data:`STANDING` layers, or one less. ``products``: the calls
    that multiply by a parameter; a period with one of them is doubled, since the best cuts of a chain of
    products alternate (columns, rows).
    """
    numbers: dict[Hashable, int] = {}
    sequence = np.array([numbers.setdefault(key, len(numbers)) for key in keys])
    counts = (STANDING - 1, STANDING) if is_few else ()
    waiting = [(0, len(sequence))]

    @cache
    def longest(start: int, end: int) -> tuple[int, int, int]:
        shortest = 1 if is_few else _SHORTEST
        first, period, length = longest_repetition(sequence[start:end], shortest, counts, products[start:end])
        return (start + first, period, length) if length >= max(2, _LEAST * len(sequence)) else (start, 1, 0)

    while waiting:
        start, end = waiting.pop()
        first, period, length = longest(start, end)
        if not length:
            continue
        further = first + length
        while further < end and sequence[further] == sequence[further - period]:
            further += 1
        # Begun later, it may leave whole layers of another kind before it.
        sides = {at: [(start, at), (at + length, end)] for at in sorted({first, further - length})}
        if len(sides) > 1:
            first = max(sides, key=lambda at: sum(longest(*side)[2] for side in sides[at]))
        yield Repetition(first, period, length)
        waiting += sides[first]


def is_odd_chain(period: Sequence[Hashable], products: int) -> bool:
    """Return whether a period is an odd number of equal parts with one product each: columns do not alternate
    with rows from one period to the next.
    """
    part, rest = divmod(len(period), products) if products else (0, 1)
    return products % 2 == 1 and not rest and period[part:] == period[:-part]


def longest_repetition(
    sequence: Sequence[int] | np.ndarray,
    shortest: int = _SHORTEST,
    counts: Sequence[int] = (),
    products: Sequence[bool] = (),
) -> tuple[int, int, int]:
    """Return the start, the period and the length of the longest repetition; length 0 if there is none.

    Among repetitions of equal length, the one with the shortest period is returned.

    Args:
        sequence: Numbers of which equal ones mean equal calls.
        shortest: Least period.
        counts: Allowed numbers of periods; default: any number.
        products: Whether each call multiplies by a parameter. No period is an odd number of equal parts with
            one of them.
    """
    sequence = np.asarray(sequence)
    before = np.zeros(len(sequence) + 1, int)
    before[1 : len(products) + 1] = np.cumsum(products, dtype=int)
    best = (0, 0, 1, 0)  # length, -period, period, first
    for period in range(shortest, len(sequence) // 2 + 1):
        same = np.concatenate([[0], (sequence[period:] == sequence[:-period]).astype(np.int8), [0]])
        edges = np.flatnonzero(np.diff(same))
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            repeats = int(end - start) // period + 1
            count = int(before[start + period] - before[start])
            is_odd = count % 2 and is_odd_chain(sequence[start : start + period].tolist(), count)
            if repeats > 1 and not is_odd and (not counts or repeats in counts):
                best = max(best, (period * repeats, -period, period, int(start)))
    length, _, period, first = best
    return first, period, length
