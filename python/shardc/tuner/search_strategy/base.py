"""``SearchStrategy``: proposes untried points, and learns from their trials."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Space
from shardc.backends.tuning.trial import Trial, fastest_first

Score = Callable[[Sequence[Point]], Sequence[float]]
"""Scores of points of one task. The point with the smallest score is expected to be the fastest."""


class SearchStrategy(ABC):
    """Strategy for one task. Its proposals are determined by the space, random draws, scores and trials."""

    def __init__(self, space: Space, draw: random.Random, score: Score) -> None:
        self.space, self.draw, self._score = space, draw, score
        self.proposed: set[Point] = set()
        self.trials: dict[Point, Trial] = {}
        self.hints: list[Point] = []

    def propose(self, count: int) -> list[Point]:
        """Return at most ``count`` legal points that were never proposed; fewer if no more are found."""
        batch: list[Point] = []
        for point in self._candidates():
            if len(batch) == count:
                break
            if point not in self.proposed:
                self.proposed.add(point)
                batch.append(point)
        return batch

    def learn(self, trials: Iterable[Trial]) -> None:
        """Learn from trials. Their points are never proposed again."""
        for trial in trials:
            self.proposed.add(trial.point)
            self.trials[trial.point] = trial

    def hint(self, points: Sequence[Point]) -> None:
        """Suggest points that are good for similar tasks. Those that are illegal here are ignored."""
        self.hints = [p for p in points if self.space.refusal(p) is None]

    @abstractmethod
    def _candidates(self) -> Iterable[Point]:
        """Return legal points, the most promising first. Some may have been proposed before."""

    def by_score(self, points: list[Point]) -> list[Point]:
        """Sort points, the most promising first."""
        scores = self._score(points) if points else []
        return [p for _, p in sorted(zip(scores, points, strict=True))]

    def untried(self, points: Iterable[Point]) -> list[Point]:
        """Return the points that were not proposed yet, the most promising first."""
        return self.by_score([p for p in points if p not in self.proposed])

    def _best(self, count: int) -> list[Point]:
        """Return the fastest measured points."""
        return [t.point for t in fastest_first(self.trials.values())[:count]]
