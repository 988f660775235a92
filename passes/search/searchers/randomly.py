"""Random plans, each improved until no single change makes it cheaper: a baseline for other searchers."""

from __future__ import annotations

from random import Random

import numpy as np

from shardc.passes.search.graph import Graph
from shardc.passes.search.searchers.searcher import Best, Budget
from shardc.passes.search.searchers.walk import Walk


def random_restarts(graph: Graph, budget: Budget) -> Best:
    """Restart from the unsharded plan with some random states until the time is up."""
    draw, best, nodes = Random(budget.seed), Best(budget), range(len(graph.costs))
    while not best.is_over:
        walk = Walk(graph, [0] * len(graph.costs), budget.capacity)
        for node in draw.sample(nodes, len(nodes)):
            possible = np.flatnonzero(np.isfinite(walk.costs_of(node)))
            if len(possible):
                walk.move(node, int(draw.choice(possible)))
        _descend(walk, best)
        best.see(walk)
    return best


def _descend(walk: Walk, best: Best) -> None:
    """Give each node in turn its best state for the others' states, memory first, while the step improves."""
    while not best.is_over:
        before = list(walk.chosen)
        for node in range(len(walk.chosen)):
            excess, costs = walk.excess_of(node), walk.costs_of(node)
            state = min(range(len(costs)), key=lambda s: (excess[s], costs[s], s != walk.chosen[node]))
            if state != walk.chosen[node]:
                walk.move(node, state)
        if before == walk.chosen:
            return
