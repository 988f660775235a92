"""Search strategies by name, and the simple ones, which only order the points."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cached_property

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Space
from shardc.diagnostics.tuner import UnknownStrategy
from shardc.tuner.search_strategy.base import Score, SearchStrategy
from shardc.tuner.search_strategy.evolutionary import Evolutionary

FIRST = 256
"""Number of points that Analytic ranks at first. When they are used up, it ranks all."""
DRAWS = 200
"""Number of draws without a new point after which Random lists the remaining points."""


class Analytic(SearchStrategy):
    """Order by the space's estimates, best first. The first proposal is the default configuration."""

    _ranked: list[Point] | None = None

    def _candidates(self) -> Iterator[Point]:
        if self._ranked is None:
            self._ranked = list(self.space.ranked(FIRST))
        yield from self._ranked
        if len(self._ranked) == FIRST:
            self._ranked = sorted(self.space.points(), key=self.space.rank)
            yield from self._ranked


class Random(SearchStrategy):
    """Random points: the baseline that every other strategy has to beat."""

    def _candidates(self) -> Iterator[Point]:
        stale = 0
        while stale < DRAWS:
            point = self.space.sample(self.draw)
            stale = stale + 1 if point in self.proposed else 0
            yield point
        left = [p for p in self.space.points() if p not in self.proposed]
        self.draw.shuffle(left)
        yield from left


class Exhaustive(SearchStrategy):
    """All points of a small space, ordered by scores that are computed again for each batch."""

    @cached_property
    def _points(self) -> list[Point]:
        return list(self.space.points())

    def _candidates(self) -> Iterator[Point]:
        return iter(self.untried(self._points))


MakeStrategy = Callable[[Space, random.Random, Score], SearchStrategy]
STRATEGIES: dict[str, MakeStrategy] = {
    "evolutionary": Evolutionary,
    "analytic": Analytic,
    "random": Random,
    "exhaustive": Exhaustive,
}


def find_strategy(name: str) -> MakeStrategy:
    """Return the constructor of the strategy with this name.

    Raises UnknownStrategy, which lists the names.
    """
    if name not in STRATEGIES:
        raise UnknownStrategy(strategy=name, known=", ".join(STRATEGIES))
    return STRATEGIES[name]
