"""``CostModel``: ranks the points of a task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Space
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Trial


class CostModel(Protocol):
    """One for all tasks of a session."""

    def learn(self, task: Task, space: Space, trials: Sequence[Trial]) -> None:
        """Takes in what became of points; those that failed count as the worst."""

    def scores(self, task: Task, space: Space, points: Sequence[Point]) -> list[float]:
        """Return ranks, smallest fastest; comparable within a task only, and not times."""
        ...


class Estimates:
    """The space's own estimate and nothing else: what there is before any trial."""

    def learn(self, task: Task, space: Space, trials: Sequence[Trial]) -> None:
        """Nothing."""

    def scores(self, task: Task, space: Space, points: Sequence[Point]) -> list[float]:
        return [math.log(space.estimate_s(p)) for p in points]
