"""Interface of the searchers: a graph with its costs, a budget, and the best plan so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from time import perf_counter

from shardc.passes.search.clock import Clock
from shardc.passes.search.graph import Graph
from shardc.passes.search.searchers.walk import Walk


@dataclass(frozen=True)
class Budget:
    """Limits of a search: bytes per device and seconds, with the seed of its random choices.

    ``clock`` may end the search before its time is up.
    """

    capacity: float = inf
    limit_s: float = 10.0
    seed: int = 0
    clock: Clock = field(default_factory=Clock)


@dataclass
class Best:
    """Cheapest plan so far that fits into the capacity; none at first."""

    budget: Budget
    chosen: list[int] | None = None
    seconds: float = inf

    def __post_init__(self) -> None:
        self._start_s = perf_counter()

    @property
    def spent(self) -> float:
        """Return the elapsed fraction of the time."""
        return min(1.0, (perf_counter() - self._start_s) / self.budget.limit_s)

    @property
    def is_over(self) -> bool:
        """Return whether the time is up."""
        return self.spent >= 1.0 or self.budget.clock.is_over

    def see(self, walk: Walk) -> None:
        if walk.cost < self.seconds and not walk.excess:
            self.chosen, self.seconds = list(walk.chosen), walk.cost


Searcher = Callable[[Graph, Budget], Best]
