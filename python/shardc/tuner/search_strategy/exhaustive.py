"""``Exhaustive``: every point of a small space, those first that are expected to be the fastest."""

from __future__ import annotations

import random
from collections.abc import Iterator

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Space
from shardc.tuner.search_strategy.base import Score, SearchStrategy


class Exhaustive(SearchStrategy):
    """``score`` is asked again for each batch, so that it may have learned meanwhile."""

    def __init__(self, space: Space, draw: random.Random, score: Score) -> None:
        super().__init__(space, draw)
        self._points = list(space.points())
        self._score = score

    def _candidates(self) -> Iterator[Point]:
        left = [p for p in self._points if p not in self.proposed]
        scores = self._score(left) if left else []
        yield from (p for _, p in sorted(zip(scores, left, strict=True)))
