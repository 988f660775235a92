"""Simulated annealing with Metropolis sampling, as in FlexFlow (Jia, Zaharia and Aiken, MLSys 2019)."""

from __future__ import annotations

from math import exp, isfinite
from random import Random

from shardc.passes.search.graph import Graph
from shardc.passes.search.searchers.searcher import Best, Budget
from shardc.passes.search.searchers.walk import Walk

_HOT, _COLD = 1e-1, 1e-5
"""First and last temperature, as fractions of the step's time."""
_STEPS = 200
"""Proposals between two checks of the clock."""
_PER_GB = 1.0
"""Penalty for each GB above the capacity, as a fraction of the step's time."""


def annealing(graph: Graph, budget: Budget) -> Best:
    """Propose random states of random nodes, and accept worse ones less and less often."""
    draw, best = Random(budget.seed), Best(budget)
    walk = Walk(graph, [0] * len(graph.costs), budget.capacity)
    start = walk.cost if isfinite(walk.cost) else 1.0
    best.see(walk)
    while not best.is_over:
        temperature = start * _HOT * (_COLD / _HOT) ** best.spent
        for _ in range(_STEPS):
            node = draw.randrange(len(graph.costs))
            state = draw.randrange(len(graph.costs[node]))
            costs, excess = walk.costs_of(node), walk.excess_of(node)
            old = walk.chosen[node]
            worse = float(costs[state] - costs[old]) if isfinite(costs[state]) else float("inf")
            worse += start * _PER_GB * float(excess[state] - excess[old]) / 1e9
            if worse <= 0 or draw.random() < exp(-worse / temperature):
                walk.move(node, state)
                best.see(walk)
    return best
