"""``Analytic``: by the estimates of the space's own models, best first."""

from __future__ import annotations

from collections.abc import Iterator

from shardc.backends.tuning.point import Point
from shardc.tuner.search_strategy.base import SearchStrategy

FIRST = 256
"""Points that are ranked at first; all of them once these are used up."""


class Analytic(SearchStrategy):
    """Needs no trial: the first that it proposes is the default configuration."""

    _ranked: list[Point] | None = None

    def _candidates(self) -> Iterator[Point]:
        if self._ranked is None:
            self._ranked = list(self.space.ranked(FIRST))
        yield from self._ranked
        if len(self._ranked) == FIRST:
            self._ranked = sorted(
                self.space.points(), key=lambda p: (p not in self.space.added, self.space.estimate_s(p), p)
            )
            yield from self._ranked
