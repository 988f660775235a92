"""Greedy relief of the worst bottleneck, as Aceso reconfigures (Liu et al., EuroSys 2024)."""

from __future__ import annotations

import numpy as np

from shardc.passes.search.graph import Graph
from shardc.passes.search.searchers.searcher import Best, Budget
from shardc.passes.search.searchers.walk import Walk

_HOPS = 3
"""Changes that are tried together: a node's, then its neighbours' answers."""


def greedy(graph: Graph, budget: Budget) -> Best:
    """From where nothing is cut: changes the node that costs most, lets its neighbours follow, and keeps that
    if the step is better; else looks at the next node.
    """
    best = Best(budget)
    walk = Walk(graph, [0] * len(graph.costs), budget.capacity)
    best.see(walk)
    improved = True
    while improved and not best.is_over:
        improved = any(_relieve(walk, node, best) for node in _by_cost(walk) if not best.is_over)
    return best


def _by_cost(walk: Walk) -> list[int]:
    """Nodes, those first that cost most; where memory lacks, those that hold most."""
    if walk.excess:
        pairs = zip(walk.graph.memory, walk.chosen, strict=True)
        weights = [float(held[:, state].max(initial=0.0)) for held, state in pairs]
    else:
        weights = [float(c[s]) for c, s in zip(walk.graph.costs, walk.chosen, strict=True)]
    return [int(node) for node in np.argsort(-np.array(weights), kind="stable")]


def _relieve(walk: Walk, node: int, best: Best) -> bool:
    """Try the states of a node, each with what its neighbours answer; keep the first that is better."""
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
    """Let neighbours take the states that are best beside the node's, and theirs in turn."""
    for other in walk.neighbours(node) if hops else ():
        costs, excess = walk.costs_of(other), walk.excess_of(other)
        state = min(range(len(costs)), key=lambda s: (excess[s], costs[s]))
        if (excess[state], costs[state]) < (excess[walk.chosen[other]], costs[walk.chosen[other]]):
            walk.move(other, state)
            _follow(walk, other, hops - 1)


def _measure(walk: Walk) -> tuple[float, float]:
    return walk.excess, walk.cost
