"""Cost model without learning, as before any trial."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Space
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Trial


class Estimates:
    """The space's own estimate and nothing else."""

    def learn(self, task: Task, space: Space, trials: Sequence[Trial]) -> None:
        """Nothing."""

    def scores(self, task: Task, space: Space, points: Sequence[Point]) -> list[float]:
        return [math.log(space.estimate_s(p)) for p in points]
