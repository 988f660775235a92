"""``SearchStrategy``: proposes points that were not tried, and is told what became of them."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Space
from shardc.backends.tuning.trial import Trial, fastest_first

Score = Callable[[Sequence[Point]], Sequence[float]]
"""Ranks points of one task: the smallest is expected to be the fastest."""


class SearchStrategy(ABC):
    """Of one task. The same space, draws, scores and answers give the same proposals."""

    def __init__(self, space: Space, draw: random.Random, score: Score) -> None:
        self.space, self.draw, self._score = space, draw, score
        self.proposed: set[Point] = set()
        self.trials: dict[Point, Trial] = {}
        self.hints: list[Point] = []

    def propose(self, count: int) -> list[Point]:
        """At most ``count`` legal points that were never proposed; fewer where no more are left, or found."""
        batch: list[Point] = []
        for point in self._candidates():
            if len(batch) == count:
                break
            if point not in self.proposed:
                self.proposed.add(point)
                batch.append(point)
        return batch

    def learn(self, trials: Iterable[Trial]) -> None:
        """What became of points, which are not proposed any more."""
        for trial in trials:
            self.proposed.add(trial.point)
            self.trials[trial.point] = trial

    def hint(self, points: Sequence[Point]) -> None:
        """Points that are good for similar tasks, of which those count that are legal here."""
        self.hints = [p for p in points if self.space.refusal(p) is None]

    @abstractmethod
    def _candidates(self) -> Iterable[Point]:
        """Legal points in the order in which they are worth a trial; some may have been proposed before."""

    def by_score(self, points: list[Point]) -> list[Point]:
        """The most promising first."""
        scores = self._score(points) if points else []
        return [p for _, p in sorted(zip(scores, points, strict=True))]

    def untried(self, points: Iterable[Point]) -> list[Point]:
        """Those that were not proposed, the most promising first."""
        return self.by_score([p for p in points if p not in self.proposed])

    def _best(self, count: int) -> list[Point]:
        """The fastest points that were measured."""
        return [t.point for t in fastest_first(self.trials.values())[:count]]
