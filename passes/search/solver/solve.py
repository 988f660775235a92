"""Search for the cheapest choice of states of a graph, with a bound on any cheaper choice.

The graph is a cost function network, which toulbar2 solves to the optimum
(:mod:`shardc.passes.search.solver.network`). If the cheapest choice exceeds the memory, memory gets prices
(:mod:`shardc.passes.search.solver.prices`), until one fits whose seconds are close to the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter

import numpy as np

from shardc.passes.search.clock import Clock
from shardc.passes.search.graph import Graph
from shardc.passes.search.searchers.walk import Walk, settle
from shardc.passes.search.solver.ask import cheapest
from shardc.passes.search.solver.prices import Prices
from shardc.passes.search.solver.relink import relinked

OPTIMAL = "no cheaper plan exists, up to the gap"
GAP = 2e-3
"""Relative gap between a plan's cost and the lower bound at which the search under a memory limit ends."""
TRIES = 16
"""Limit of the number of prices of memory to try."""
_CLOSE = 1.1
"""Multiple of the seconds that a choice must beat up to which the cheapest is searched in any case: its bound
serves other searches."""
_ROUNDING = 1e-6
LIMIT_S = 20.0
"""Seconds after which no other price is tried."""


@dataclass(frozen=True)
class Solution:
    """State for each node of a graph, their cost, and a lower bound for all choices that fit, in seconds.

    ``why``: reason why the search stopped. ``free_s``: lower bound for all choices, whether they fit or not.
    ``is_tight``: True if a cheaper choice does not fit into memory. ``prices``: those of memory with which
    the choice was the cheapest, in seconds per byte at each point; None if memory suffices. ``weight``: that
    of late collectives with which it was the cheapest; None if it was not found by :func:`solve_overlapped`.
    ``seen``: the cheapest choice with each price and weight, whether it fits or not.
    """

    chosen: list[int]
    seconds: float
    bound_s: float
    why: str
    free_s: float = 0.0
    is_tight: bool = False
    prices: np.ndarray | None = field(default=None, repr=False, compare=False)
    weight: float | None = field(default=None, repr=False, compare=False)
    seen: Sequence[list[int]] = field(default=(), repr=False, compare=False)

    @property
    def byte_s(self) -> float:
        """Upper bound of the seconds that one more byte of memory saves."""
        return 0.0 if self.prices is None else float(self.prices.sum())

    @property
    def gap(self) -> float:
        """Upper bound of the fraction of the cost that another choice could save."""
        return max(0.0, 1 - self.bound_s / self.seconds) if self.seconds else 0.0


@dataclass(frozen=True)
class NoSolution:
    """Result if no choice that fits was found. ``bound_s``, ``free_s``: as in :class:`Solution`."""

    bound_s: float = -inf
    free_s: float = -inf


def solve(
    graph: Graph, capacity: float = inf, cutoff_s: float = inf, clock: Clock | None = None
) -> Solution | NoSolution:
    """Return the cheapest states found with which a device holds at most ``capacity`` bytes at each point.

    The graph is first solved without the limit. That solution is returned if it fits, or if no choice takes
    less than ``cutoff_s``. When ``clock`` is over, the best states so far are returned.
    """
    clock = clock or Clock()
    found = cheapest(graph, clock, most_s=_CLOSE * cutoff_s)
    if found.chosen is None:
        return NoSolution(found.bound_s, found.bound_s)
    seconds = graph.seconds(found.chosen)
    bound_s = min(found.bound_s, seconds)
    free = Solution(found.chosen, seconds, bound_s, OPTIMAL, bound_s, seen=(found.chosen,))
    if free.gap > GAP:
        free = replace(free, why=_late(clock))
    if free.bound_s >= cutoff_s or (graph.bytes_at(free.chosen) <= capacity).all():
        return free
    if clock.is_over:
        return NoSolution(bound_s, bound_s)
    return _Fitting(graph, capacity).found(free, cutoff_s, clock)


def _late(clock: Clock) -> str:
    return clock.why if clock.is_over else f"time limit of {LIMIT_S:g} s"


class _Fitting:
    """Choices that fit into memory."""

    def __init__(self, graph: Graph, capacity: float) -> None:
        self._graph, self._capacity = graph, capacity
        self._best: list[int] | None = None
        self._best_s = inf
        self._seen = list[list[int]]()
        """The cheapest choice with each price of memory, whether it fits or not."""

    def found(self, free: Solution, cutoff_s: float, clock: Clock) -> Solution | NoSolution:
        """Return the best choice found.

        ``free``: the cheapest choice that does not fit. It is returned if no choice that fits takes less than
        ``cutoff_s``.
        """
        prices = Prices(abs(free.seconds) or 1.0, self._graph.points)
        prices.see(prices.best, free.bound_s)
        self._take(free.chosen, prices)
        why, start_s = f"{TRIES} prices of memory were tried", perf_counter()
        for _ in range(TRIES):
            if prices.bound_s >= cutoff_s:
                return replace(free, bound_s=prices.bound_s)
            if prices.bound_s >= self._best_s * (1 - GAP):
                why = OPTIMAL
                break
            if (
                clock.is_over
                or (clock.is_enough and self._best is not None)
                or perf_counter() - start_s > LIMIT_S
            ):
                why = _late(clock)
                break
            tried = prices.next(GAP / 2)
            if tried is None:
                why = "no other price of memory gives a better bound"
                break
            most_s = (cutoff_s + float(tried.sum())) * (1 + _ROUNDING)
            found = cheapest(self._graph, clock, tried / self._capacity, most_s=most_s)
            prices.see(tried, found.bound_s)
            if found.chosen is not None:
                self._take(found.chosen, prices)
        if why != OPTIMAL and not clock.is_over:
            self._improve()
        if self._best is None:
            return NoSolution(prices.bound_s, free.free_s)
        bound_s, at = min(prices.bound_s, self._best_s), prices.best / self._capacity
        return Solution(self._best, self._best_s, bound_s, why, free.free_s, True, at, seen=self._seen)

    def _take(self, chosen: list[int], prices: Prices) -> None:
        """Add the plane of a choice, and keep the choice, or one near to it that fits, if it is better."""
        held = self._graph.bytes_at(chosen)
        self._seen.append(chosen)
        prices.add(self._graph.seconds(chosen), held / self._capacity - 1)
        walk = Walk(self._graph, chosen, self._capacity)
        settle(walk)
        if not walk.excess and walk.cost < self._best_s:
            self._best, self._best_s = walk.chosen, walk.cost

    def _improve(self) -> None:
        """Replace the best choice by a cheaper one between it and those found with each price of memory."""
        best = self._best
        if best is not None:
            for chosen in self._seen:
                best = relinked(self._graph, best, chosen, self._capacity)
            self._best, self._best_s = best, self._graph.total(best)
