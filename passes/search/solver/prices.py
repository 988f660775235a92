"""Prices of memory: the best lower bound that a cost for each byte at each point of a step gives.

Choices that fit are searched by Lagrangian relaxation (Geoffrion 1974). If a byte has a price, the cheapest
choice is found without a limit, and its cost minus the price of all memory is a lower bound. Each choice that
was found bounds this function of the prices by a plane (Kelley 1960). The next prices are between the best
ones and the optimum of the planes, which keeps them from oscillating (Ben-Ameur and Neto 2007).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import highspy
import numpy as np

_FIRST, _GROWTH, _LAST = 1 / 8, 8.0, 64.0
"""First limit of prices, in steps; factor by which it grows while it is reached; last limit. At the last one
a choice that saves a thousandth of the memory may take a twentieth longer."""

_LEAST = 1e-9
"""Part of the memory that counts as nothing. HiGHS refuses coefficients that small."""

_STEP = 0.85
"""Part of the way from the best prices to the optimum of the planes."""


@dataclass
class Prices:
    """Prices of all memory at each point, in seconds, and the choices that they led to.

    Args:
        step_s: About the seconds of a step.
        points: Number of points of the step at which memory is limited.
        seconds: Seconds of each choice that was found.
        excess: For each choice, the part of the memory that it lacks at each point; negative where it fits.
    """

    step_s: float
    points: int
    seconds: list[float] = field(default_factory=list)
    excess: list[np.ndarray] = field(default_factory=list)
    best: np.ndarray = field(init=False)
    """Prices with the best bound."""
    bound_s: float = -inf
    """Best lower bound of the seconds of choices that fit."""
    _limit: float = _FIRST

    def __post_init__(self) -> None:
        self.best = np.zeros(self.points)

    def see(self, prices: np.ndarray, bound_s: float) -> None:
        """Take a lower bound: of the seconds and the priced memory of any choice."""
        bound_s -= float(prices.sum())
        if bound_s > self.bound_s:
            self.best, self.bound_s = prices, bound_s

    def add(self, seconds: float, excess: np.ndarray) -> None:
        """Take a choice."""
        self.seconds.append(seconds)
        self.excess.append(excess)

    def next(self, gap: float) -> np.ndarray | None:
        """Return the prices to try next.

        None if no prices give a better bound, up to the relative ``gap``, or if prices are so high that
        nothing fits.
        """
        found, most_s = self._highest()
        while (found >= self._limit * self.step_s * (1 - 1e-9)).any():
            if self._limit >= _LAST:
                return None
            if not self._is_grown(found):
                break
            self._limit *= _GROWTH
            found, most_s = self._highest()
        is_done = self.bound_s >= most_s - gap * abs(most_s)
        return None if is_done else self.best + _STEP * (found - self.best)

    def _is_grown(self, found: np.ndarray) -> bool:
        """Return whether the best prices are about as high as the limit where ``found`` reaches it."""
        limit = self._limit * self.step_s
        return bool((self.best[found >= limit * (1 - 1e-9)] >= limit / 4).any())

    def _highest(self) -> tuple[np.ndarray, float]:
        """Return the prices, up to the limit, at which the least of the planes is highest, and its value."""
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        scale = 1 / self.step_s  # HiGHS's tolerances are absolute
        least = highs.addVariable(lb=-highspy.kHighsInf)
        prices = [highs.addVariable(lb=0.0, ub=self._limit) for _ in range(self.points)]
        for seconds, excess in zip(self.seconds, self.excess, strict=True):
            terms = [(e, price) for e, price in zip(excess.tolist(), prices, strict=True) if abs(e) > _LEAST]
            paid = highs.qsum(e * price for e, price in terms)
            highs.addConstr(least <= seconds * scale + paid)
        highs.maximize(least)
        most, *found = highs.getSolution().col_value
        return np.array(found) / scale, most / scale
