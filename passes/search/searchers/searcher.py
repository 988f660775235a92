"""What searchers have in common: the same graph, the same costs, a limit of time."""

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
    """Bytes that a device may hold, seconds that a search may take, and the seed of what it draws.

    ``clock``: what may end the search before.
    """

    capacity: float = inf
    limit_s: float = 10.0
    seed: int = 0
    clock: Clock = field(default_factory=Clock)


@dataclass
class Best:
    """The cheapest choice that was met so far and holds the capacity; none at first."""

    budget: Budget
    chosen: list[int] | None = None
    seconds: float = inf

    def __post_init__(self) -> None:
        self._start_s = perf_counter()

    @property
    def spent(self) -> float:
        """The part of the time that is over."""
        return min(1.0, (perf_counter() - self._start_s) / self.budget.limit_s)

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.spent >= 1.0 or self.budget.clock.is_over

    def see(self, walk: Walk) -> None:
        if walk.cost < self.seconds and not walk.excess:
            self.chosen, self.seconds = list(walk.chosen), walk.cost


Searcher = Callable[[Graph, Budget], Best]
