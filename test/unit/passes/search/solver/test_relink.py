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
    """Return ``count`` pairs of nodes. A pair computes for 1 s, or for less in one byte: by 0.1 s in the
    first pair, and so on."""
    graph = Graph(points=1)
    for pair in range(count):
        first, second = graph.add_node(2), graph.add_node(2)
        graph.costs[first] = np.array([1.0, 0.9 - 0.1 * pair])
        graph.memory[first][0] = [0.0, 1.0]
        graph.add_edge(first, second, np.array([[0.0, inf], [inf, 0.0]]))
    return graph


def test_places_that_save_the_most_are_taken() -> None:
    found = relinked(pairs(8), [0] * 16, [1] * 16, capacity=3.0)
    assert found == [0] * 10 + [1] * 6


def test_all_that_fits_is_taken() -> None:
    assert relinked(pairs(8), [0] * 16, [1] * 16, inf) == [1] * 16


def test_what_a_limit_leaves_is_used() -> None:
    """One price of memory takes all pairs or none; what is best is between them."""
    graph = pairs(8)
    for first in range(0, 16, 2):
        graph.costs[first] = np.array([1.0, 0.5])
    found = solve_overlapped(graph, capacity=3.0)
    assert isinstance(found, Solution)
    assert found.seconds == pytest.approx(6.5)


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
