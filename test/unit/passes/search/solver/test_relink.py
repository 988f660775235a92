"""Choices between two others: never dearer than the start, and near to the best of all mixtures."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from choice_graphs import choices, drawn, total

from shardc.passes.search.graph import Graph
from shardc.passes.search.solver.overlap import solve_overlapped
from shardc.passes.search.solver.relink import relinked
from shardc.passes.search.solver.solve import Solution


def pairs(count: int) -> Graph:
    """Return ``count`` pairs of nodes. A pair sends 1 s late, or computes 0.6 s longer, which covers 1 s."""
    graph = Graph(points=1)
    for pair in range(count):
        first, second = graph.add_node(2), graph.add_node(2)
        graph.costs[first], graph.costs[second] = np.array([1.0, 1.6]), np.array([0.0, 0.0])
        graph.cover[first] = np.array([0.0, 1.0])
        graph.add_edge(first, second, np.array([[0.0, inf], [inf, 0.0]]))
        graph.add_edge(first, second, np.array([[1.0, 0.0], [0.0, 0.0]]), is_late=True)
        assert (first, second) == (2 * pair, 2 * pair + 1)
    return graph


def test_the_best_mixture_is_between_the_two() -> None:
    graph = pairs(8)
    sends, covers = [0] * 16, [1] * 16
    assert (graph.total(sends), graph.total(covers)) == (16.0, pytest.approx(12.8))
    found = relinked(graph, sends, covers, inf)
    assert graph.total(found) == pytest.approx(8 + 4 * 0.6)
    assert sum(found) == 8
    solution = solve_overlapped(graph)
    assert isinstance(solution, Solution)
    assert solution.seconds == pytest.approx(8 + 4 * 0.6)
    assert solution.gap <= 1e-2


def test_what_does_not_fit_is_not_taken() -> None:
    graph = pairs(8)
    for node in range(0, 16, 2):
        graph.memory[node][0] = [0.0, 1.0]
    found = relinked(graph, [0] * 16, [1] * 16, capacity=3.0)
    assert sum(found) == 6


def test_places_of_random_graphs() -> None:
    better = 0
    for graph in map(drawn, range(100)):
        capacity = float(np.median([graph.bytes_at(chosen).max() for chosen in choices(graph)]))
        fitting = [
            c for c in choices(graph) if (graph.bytes_at(c) <= capacity).all() and total(graph, c) < inf
        ]
        for start, goal in zip(fitting[:8], reversed(fitting), strict=False):
            found = relinked(graph, start, goal, capacity)
            assert all(state in pair for state, *pair in zip(found, start, goal, strict=True))
            assert (graph.bytes_at(found) <= capacity).all()
            assert total(graph, tuple(found)) <= total(graph, start) + 1e-12
            better += total(graph, tuple(found)) < total(graph, start) - 1e-9
    assert better > 50
