"""Plan that changes one node at a time, with incremental costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, isfinite

import numpy as np

from shardc.passes.search.distances import Matrix
from shardc.passes.search.graph import Graph

_Near = list[dict[int, Matrix]]
SWEEPS = 3
"""How often :func:`settle` looks at every node."""


class Walk:
    """State of each node of a graph. Only :meth:`move` changes ``chosen``."""

    def __init__(self, graph: Graph, chosen: Sequence[int], capacity: float = inf) -> None:
        self.graph, self.chosen, self.capacity = graph, list(chosen), capacity
        self._near, self._late = _near(graph, late=False), _near(graph, late=True)
        self.seconds, self.uncovered = graph.seconds(self.chosen), graph.uncovered(self.chosen)
        self.held = graph.bytes_at(self.chosen)

    @property
    def cost(self) -> float:
        """Return the seconds of a step; infinite for an impossible plan."""
        return self.seconds + max(0.0, self.uncovered)

    @property
    def excess(self) -> float:
        """Return the bytes above the capacity at peak memory."""
        return max(0.0, float(self.held.max(initial=0.0)) - self.capacity)

    def costs_of(self, node: int) -> np.ndarray:
        """Return the step's cost for each state of one node, with the other nodes unchanged."""
        graph, old = self.graph, self.chosen[node]
        if not isfinite(self.cost):  # a difference of infinite costs is undefined
            return np.array([self._cost_with(node, state) for state in range(len(graph.costs[node]))])
        alone = graph.costs[node] + self._beside(self._near, node)
        late = self._beside(self._late, node) - graph.cover[node]
        return (alone + (self.seconds - alone[old])) + np.maximum(late + (self.uncovered - late[old]), 0.0)

    def excess_of(self, node: int) -> np.ndarray:
        """Return the bytes above the capacity for each state of one node."""
        memory = self.graph.memory[node]
        if not len(memory):
            return np.zeros(memory.shape[1])
        held = self.held[:, None] - memory[:, self.chosen[node]][:, None] + memory
        return np.maximum(held.max(axis=0) - self.capacity, 0.0)

    def move(self, node: int, state: int) -> None:
        """Change the state of a node."""
        graph, old, memory = self.graph, self.chosen[node], self.graph.memory[node]
        self.held = self.held - memory[:, old] + memory[:, state]
        alone = graph.costs[node] + self._beside(self._near, node)
        late = self._beside(self._late, node) - graph.cover[node]
        self.chosen[node] = state
        if isfinite(self.cost) and isfinite(alone[state] + late[state]):
            self.seconds += float(alone[state] - alone[old])
            self.uncovered += float(late[state] - late[old])
        else:  # a difference of infinite costs is undefined
            self.seconds, self.uncovered = graph.seconds(self.chosen), graph.uncovered(self.chosen)

    def neighbours(self, node: int) -> Iterator[int]:
        yield from dict.fromkeys([*self._near[node], *self._late[node]])

    def _beside(self, near: _Near, node: int) -> np.ndarray:
        total = np.zeros(len(self.graph.costs[node]))
        for other, seconds in near[node].items():
            total = total + seconds[:, self.chosen[other]]
        return total

    def _cost_with(self, node: int, state: int) -> float:
        chosen = [*self.chosen[:node], state, *self.chosen[node + 1 :]]
        return self.graph.seconds(chosen) + max(0.0, self.graph.uncovered(chosen))


def settle(walk: Walk, fixed: int | None = None) -> None:
    """Set each node but ``fixed`` to its cheapest state that fits with the others; repeat SWEEPS times.

    An impossible plan stays as it is.
    """
    for _ in range(SWEEPS if isfinite(walk.cost) else 0):
        before = list(walk.chosen)
        for node, old in enumerate(before):
            costs = walk.costs_of(node)
            if costs[old] <= costs.min() and not walk.excess:
                continue
            excess = walk.excess_of(node)
            excess[np.isinf(costs)] = np.inf
            state = int(np.lexsort((costs, excess))[0])
            if node != fixed and (excess[state], costs[state]) < (excess[old], costs[old]):
                walk.move(node, state)
        if walk.chosen == before:
            break


def _near(graph: Graph, late: bool) -> _Near:
    found: _Near = [{} for _ in graph.costs]
    for (first, second), seconds in (graph.late if late else graph.edges).items():
        found[first][second], found[second][first] = seconds, seconds.T
    return found
