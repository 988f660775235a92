"""Dynamic programming from the first call to the last, as Alpa and Galvatron plan layers (Zheng et al., OSDI
2022; Miao et al., VLDB 2022). Of partial plans that differ for later calls, the cheapest are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardc.passes.search.graph import Graph
from shardc.passes.search.searchers.searcher import Best, Budget
from shardc.passes.search.searchers.walk import Walk

_KEPT = 500
"""Number of partial plans to keep. Without a memory bound the result is exact if there are no more."""


@dataclass(frozen=True)
class _Partial:
    """Partial plan: the nodes' states as a linked list, their cost, and the states that later nodes read."""

    seconds: float
    state: int
    before: _Partial | None
    seen: tuple[tuple[int, int], ...] = ()

    def states(self) -> Iterator[int]:
        """Return the states from the newest node back to the first."""
        at: _Partial | None = self
        while at is not None and at.state >= 0:
            yield at.state
            at = at.before


def layers(graph: Graph, budget: Budget) -> Best:
    """Extend partial plans node by node. Costs of late nodes count in full; memory is checked at the end."""
    best, priced = Best(budget), graph.weighted(1.0)
    near: list[dict[int, np.ndarray]] = [{} for _ in priced.costs]
    for (first, second), seconds in priced.edges.items():
        near[second][first] = seconds
    last = [max((n for n in range(len(near)) if node in near[n]), default=node) for node in range(len(near))]
    kept = [_Partial(0.0, -1, None)]
    for node, costs in enumerate(priced.costs):
        if best.is_over:
            return best
        found: dict[tuple[tuple[int, int], ...], _Partial] = {}
        for partial in kept:
            seen = dict(partial.seen)
            total = partial.seconds + costs
            for other, seconds in near[node].items():
                total = total + seconds[seen[other]]
            for state in np.flatnonzero(np.isfinite(total)):
                still = {n: s for n, s in {**seen, node: int(state)}.items() if last[n] > node}
                key = tuple(sorted(still.items()))
                if key not in found or total[state] < found[key].seconds:
                    found[key] = _Partial(float(total[state]), int(state), partial, key)
        kept = sorted(found.values(), key=lambda partial: partial.seconds)[:_KEPT]
    for partial in kept:
        best.see(Walk(graph, [*partial.states()][::-1], budget.capacity))
    return best
