"""Greedy relief of the worst bottleneck, as in Aceso (Liu et al., EuroSys 2024)."""

from __future__ import annotations

import numpy as np

from shardc.passes.search.graph import Graph
from shardc.passes.search.searchers.searcher import Best, Budget
from shardc.passes.search.searchers.walk import Walk

_HOPS = 3
"""Distance to which a node's change propagates to its neighbours before the result is judged."""


def greedy(graph: Graph, budget: Budget) -> Best:
    """Start unsharded and repeatedly change the most expensive node, letting its neighbours follow.

    A change is kept if the step gets better; otherwise the next node is tried.
    """
    best = Best(budget)
    walk = Walk(graph, [0] * len(graph.costs), budget.capacity)
    best.see(walk)
    improved = True
    while improved and not best.is_over:
        improved = any(_relieve(walk, node, best) for node in _by_cost(walk) if not best.is_over)
    return best


def _by_cost(walk: Walk) -> list[int]:
    """Return the nodes, most expensive first; if memory is exceeded, those with most bytes first."""
    if walk.excess:
        pairs = zip(walk.graph.memory, walk.chosen, strict=True)
        weights = [float(held[:, state].max(initial=0.0)) for held, state in pairs]
    else:
        weights = [float(c[s]) for c, s in zip(walk.graph.costs, walk.chosen, strict=True)]
    return [int(node) for node in np.argsort(-np.array(weights), kind="stable")]


def _relieve(walk: Walk, node: int, best: Best) -> bool:
    """Try each state of a node, let its neighbours follow, and keep the first that is better."""
    before, measure = list(walk.chosen), _measure(walk)
    for state in np.argsort(walk.costs_of(node), kind="stable"):
        if int(state) == before[node]:
            continue
        walk.move(node, int(state))
        _follow(walk, node, _HOPS)
        if _measure(walk) < measure:
            best.see(walk)
            return True
        for other, old in enumerate(before):
            if walk.chosen[other] != old:
                walk.move(other, old)
        if best.is_over:
            break
    return False


def _follow(walk: Walk, node: int, hops: int) -> None:
    """Give neighbours their best states for the node's new state, then their neighbours in turn."""
    for other in walk.neighbours(node) if hops else ():
        costs, excess = walk.costs_of(other), walk.excess_of(other)
        state = min(range(len(costs)), key=lambda s: (excess[s], costs[s]))
        if (excess[state], costs[state]) < (excess[walk.chosen[other]], costs[walk.chosen[other]]):
            walk.move(other, state)
            _follow(walk, other, hops - 1)


def _measure(walk: Walk) -> tuple[float, float]:
    return walk.excess, walk.cost
