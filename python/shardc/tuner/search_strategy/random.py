"""``Random``: points drawn from the space, with nothing known of them."""

from __future__ import annotations

from collections.abc import Iterator

from shardc.backends.tuning.point import Point
from shardc.tuner.search_strategy.base import SearchStrategy

DRAWS = 200
"""Draws that give nothing new, one after the other, before what is left is listed."""


class Random(SearchStrategy):
    """The peer that every other strategy has to beat."""

    def _candidates(self) -> Iterator[Point]:
        stale = 0
        while stale < DRAWS:
            point = self.space.sample(self.draw)
            stale = stale + 1 if point in self.proposed else 0
            yield point
        left = [p for p in self.space.points() if p not in self.proposed]
        self.draw.shuffle(left)
        yield from left
