"""Sequential test on the ratios of paired times, which decides when enough pairs were timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import comb
from statistics import median


class Verdict(StrEnum):
    """Verdict on a candidate, compared with the incumbent."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUAL = "equal"
    """Difference within the noise, or undecided after the last pair."""


@dataclass(frozen=True)
class Rule:
    """Rule of the test. Order statistics bound the median ratio of pairs, candidate to incumbent.

    This is the inverted sign test; ``error`` is the probability that one side of the bound is wrong at one
    look. The candidate is

    - slower if the bound is above 1; with fewer than 5 pairs, if both of 2 ratios are above ``clear``, or all
      of 3 or 4 are above its square root;
    - faster if the bound is below 1 and narrower than ``width``, after at least 8 pairs;
    - equal if the bound is within ``width`` of 1, after at least 8 pairs.

    After ``most`` pairs, or if 5 or more pairs took ``budget_s``, the bound alone decides.
    """

    error: float = 0.05
    clear: float = 1.2
    width: float = 0.02
    most: int = 40
    budget_s: float = 2.0

    def bounds(self, ratios: Sequence[float]) -> tuple[float, float] | None:
        """Return bounds on the median; None if there are too few ratios."""
        found, count, tail = sorted(ratios), len(ratios), 0.0
        inside = 0
        while (tail := tail + comb(count, inside) / 2**count) <= self.error:
            inside += 1
        return (found[inside - 1], found[count - inside]) if inside else None

    def verdict(self, ratios: Sequence[float], spent_s: float = 0.0) -> Verdict | None:
        """Return the verdict; None if another pair is needed."""
        count = len(ratios)
        if 2 <= count < 5 and min(ratios) > (self.clear if count == 2 else self.clear**0.5):
            return Verdict.SLOWER
        bounds = self.bounds(ratios)
        last = count >= self.most or (spent_s >= self.budget_s and count >= 5)
        if bounds is None:
            return Verdict.EQUAL if last else None
        low, high = bounds
        if low > 1:
            return Verdict.SLOWER
        narrow = high - low <= self.width * median(ratios)
        if high < 1 and (last or (count >= 8 and narrow)):
            return Verdict.FASTER
        if last or (count >= 8 and 1 - self.width <= low and high <= 1 + self.width):
            return Verdict.EQUAL
        return None


@dataclass(frozen=True)
class Pairs:
    """Seconds of a call of each, pair by pair, and the verdict."""

    candidate: tuple[float, ...]
    incumbent: tuple[float, ...]
    verdict: Verdict

    @property
    def ratios(self) -> list[float]:
        return [c / i for c, i in zip(self.candidate, self.incumbent, strict=True)]

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    def spread(self, rule: Rule) -> float:
        """Return half the width of the bound on the ratio; half the range if there are too few ratios."""
        low, high = rule.bounds(self.ratios) or (min(self.ratios), max(self.ratios))
        return (high - low) / 2


def take_turns(candidate: Callable[[int], float], incumbent: Callable[[int], float], rule: Rule) -> Pairs:
    """Time the two in pairs, alternating the order, until ``rule`` is satisfied.

    Each is called with the number, 0 or 1, of the inputs to run on, and returns seconds.
    """
    calls = (candidate, incumbent)
    seconds: tuple[list[float], list[float]] = ([], [])
    while True:
        first = len(seconds[0]) % 2
        for inputs, which in enumerate((first, 1 - first)):
            seconds[which].append(calls[which](inputs))
        ratios = [ours / theirs for ours, theirs in zip(*seconds, strict=True)]
        found = rule.verdict(ratios, sum(map(sum, seconds)))
        if found is not None:
            return Pairs(tuple(seconds[0]), tuple(seconds[1]), found)
