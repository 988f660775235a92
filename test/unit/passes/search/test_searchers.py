"""Other searchers: results are possible, fit into memory, and never beat the exact search's bound."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from choice_graphs import drawn, total
from torch_mlir import ir

from shardc.diagnostics.cli import BadPassOption
from shardc.dialects.context import new_context
from shardc.passes.manager.reading import Reading
from shardc.passes.search.dist_search import DistSearch
from shardc.passes.search.searchers.annealing import annealing
from shardc.passes.search.searchers.greedy import greedy
from shardc.passes.search.searchers.layers import layers
from shardc.passes.search.searchers.randomly import random_restarts
from shardc.passes.search.searchers.searcher import Budget, Searcher
from shardc.passes.search.searchers.walk import Walk
from shardc.passes.search.solver.overlap import solve_overlapped
from shardc.passes.search.solver.solve import NoSolution, Solution

SEARCHERS: dict[str, Searcher] = {
    "annealing": annealing,
    "greedy": greedy,
    "layers": layers,
    "random": random_restarts,
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", SEARCHERS)
def test_what_is_found_can_be(name: str) -> None:
    found_any = 0
    for graph in map(drawn, range(30)):
        capacity = float(np.median([m.max() for m in graph.memory])) * len(graph.memory)
        exact = solve_overlapped(graph, capacity)
        found = SEARCHERS[name](graph, Budget(capacity, limit_s=0.05))
        if found.chosen is None:
            continue
        found_any += 1
        assert found.seconds == pytest.approx(total(graph, tuple(found.chosen)))
        assert (graph.bytes_at(found.chosen) <= capacity + 1e-9).all()
        assert found.seconds >= exact.bound_s - 1e-6
    assert found_any >= 15


def test_a_walk_counts_what_changes() -> None:
    for graph in map(drawn, range(20)):
        walk = Walk(graph, [0] * len(graph.costs))
        draw = np.random.default_rng(0)
        for _ in range(20):
            node = int(draw.integers(len(graph.costs)))
            state = int(draw.integers(len(graph.costs[node])))
            said = walk.costs_of(node)[state]
            walk.move(node, state)
            counted = total(graph, tuple(walk.chosen))
            assert walk.cost == pytest.approx(counted) or counted == inf == walk.cost
            assert said == pytest.approx(counted) or counted == inf == said
            assert walk.held == pytest.approx(graph.bytes_at(walk.chosen))


def test_layers_are_exact_on_a_chain() -> None:
    """Where a call's readers are its neighbours, few partial choices differ in what is still to be seen."""
    for graph in map(drawn, range(40)):
        chain = {pair: e for pair, e in graph.edges.items() if pair[1] == pair[0] + 1}
        graph.edges, graph.late = chain, {}
        exact = solve_overlapped(graph.weighted(1.0))
        found = layers(graph.weighted(1.0), Budget(limit_s=5.0))
        assert isinstance(exact, NoSolution) == (found.chosen is None)
        if isinstance(exact, Solution):
            assert found.seconds <= exact.seconds + 1e-9


def test_an_unknown_searcher_is_named() -> None:
    with pytest.raises(BadPassOption, match="one of exact, annealing, greedy, layers, random"):
        DistSearch(searcher="genetic").apply(Reading(ir.Module.parse("", new_context())))
