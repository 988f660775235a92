"""Random graphs of choices, small enough to try all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import inf

import numpy as np

from shardc.passes.search.graph import Graph


def drawn(seed: int) -> Graph:
    """A random graph: some pairs of states cannot be, some edges are late, some states take memory."""
    draw = np.random.default_rng(seed)
    graph = Graph(points=int(draw.integers(1, 3)))
    nodes = int(draw.integers(2, 8))
    for _ in range(nodes):
        states = int(draw.integers(1, 5))
        node = graph.add_node(states)
        graph.costs[node] = np.round(draw.random(states), 2)
        graph.cover[node] = graph.costs[node] * draw.integers(0, 2)
        graph.memory[node] = np.round(draw.random((graph.points, states)) * draw.integers(0, 2), 2)
    for first, second in itertools.combinations(range(nodes), 2):
        if draw.random() < 0.5:
            seconds = np.round(draw.random((len(graph.costs[first]), len(graph.costs[second]))), 1)
            seconds[draw.random(seconds.shape) < 0.1] = inf
            graph.add_edge(first, second, seconds, is_late=draw.random() < 0.3)
    return graph


def choices(graph: Graph) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(len(costs)) for costs in graph.costs))


def total(graph: Graph, chosen: tuple[int, ...]) -> float:
    return graph.seconds(chosen) + max(0.0, graph.uncovered(chosen))
