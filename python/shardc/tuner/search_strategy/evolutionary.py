"""``Evolutionary``: mutation and crossover, ranked by the cost model (Ansor, section 5.1)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Space
from shardc.tuner.mutator import crossed, mutated
from shardc.tuner.search_strategy.base import Score, SearchStrategy

HINTS = 2
"""Number of points from similar tasks that come first in a batch."""


@dataclass(frozen=True)
class Settings:
    """Settings of the evolution.

    ``population``: number of points in each of ``generations``. ``crossover``: share of children with two
    parents. ``epsilon``: share of a batch that is random; ``first``: the same for the first batch.
    ``listed``: size up to which a space is ranked whole, without evolution.
    """

    population: int = 256
    generations: int = 4
    crossover: float = 0.15
    epsilon: float = 0.05
    first: float = 0.15
    listed: int = 4096


class Evolutionary(SearchStrategy):
    """Evolution from the best estimates, hints and random points, and later from the fastest points."""

    def __init__(
        self, space: Space, draw: random.Random, score: Score, settings: Settings = Settings()
    ) -> None:
        super().__init__(space, draw, score)
        self._settings = settings
        points = list(islice(space.points(), settings.listed + 1))
        self._listed = points if len(points) <= settings.listed else None
        self._start: Sequence[Point] = [] if self._listed else space.ranked(settings.population // 4)

    def _candidates(self) -> Iterator[Point]:
        yield from self.hints[:HINTS]
        ranked = iter(self._ranked())
        drawn = self._settings.epsilon if self.trials else self._settings.first
        while True:
            if self.draw.random() < drawn:
                yield self.space.sample(self.draw)
            point = next(ranked, None)
            if point is None:
                return
            yield point

    def _ranked(self) -> list[Point]:
        """Return untried points, the most promising first."""
        if self._listed is not None:
            return self.untried(self._listed)
        return [p for p in self._evolved() if p not in self.proposed]

    def _evolved(self) -> list[Point]:
        """Return the points of all generations, the most promising first."""
        settings = self._settings
        alive = list(dict.fromkeys([*self._best(settings.population // 8), *self.hints, *self._start]))
        while len(alive) < settings.population:
            alive.append(self.space.sample(self.draw))
        seen = dict.fromkeys(alive)
        for _ in range(settings.generations):
            parents = self.by_score(list(dict.fromkeys(alive)))[: settings.population // 2]
            alive = [*parents, *self._children(parents, settings.population - len(parents))]
            seen |= dict.fromkeys(alive)
        return self.by_score(list(seen))

    def _children(self, parents: Sequence[Point], count: int) -> list[Point]:
        """Make children of ranked parents. A better rank makes a parent more likely."""
        weights = [1.0 / (place + 4) for place in range(len(parents))]
        made = []
        for one, other in zip(*(self.draw.choices(parents, weights, k=count) for _ in range(2)), strict=True):
            both = self.draw.random() < self._settings.crossover
            mixed = crossed(self.space, one, other, self.draw) if both else None
            made.append(mixed or mutated(self.space, one, self.draw))
        return [child for child in made if child is not None]
