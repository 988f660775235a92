"""A choice of states that changes one node at a time, with what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

import numpy as np

from shardc.passes.search.distances import Matrix
from shardc.passes.search.graph import Graph

_Near = list[dict[int, Matrix]]


class Walk:
    """A state for each node of a graph. ``chosen`` changes by :meth:`move` alone."""

    def __init__(self, graph: Graph, chosen: Sequence[int], capacity: float = inf) -> None:
        self.graph, self.chosen, self.capacity = graph, list(chosen), capacity
        self._near, self._late = _near(graph, late=False), _near(graph, late=True)
        self.seconds, self.uncovered = graph.seconds(self.chosen), graph.uncovered(self.chosen)
        self.held = graph.bytes_at(self.chosen)

    @property
    def cost(self) -> float:
        """Seconds of a step; infinite for one that cannot be."""
        return self.seconds + max(0.0, self.uncovered)

    @property
    def excess(self) -> float:
        """Bytes above the capacity, at the worst point."""
        return max(0.0, float(self.held.max(initial=0.0)) - self.capacity)

    def costs_of(self, node: int) -> np.ndarray:
        """What the step costs with each state of one node, the others as they are."""
        graph, old = self.graph, self.chosen[node]
        alone = graph.costs[node] + self._beside(self._near, node)
        late = self._beside(self._late, node) - graph.cover[node]
        with np.errstate(invalid="ignore"):
            seconds = self.seconds - alone[old] + alone
            uncovered = self.uncovered - late[old] + late
        if not np.isfinite(self.cost):
            return np.array([self._cost_with(node, state) for state in range(len(alone))])
        return seconds + np.maximum(uncovered, 0.0)

    def excess_of(self, node: int) -> np.ndarray:
        """Bytes above the capacity with each state of one node."""
        memory = self.graph.memory[node]
        if not len(memory):
            return np.zeros(memory.shape[1])
        held = self.held[:, None] - memory[:, self.chosen[node]][:, None] + memory
        return np.maximum(held.max(axis=0) - self.capacity, 0.0)

    def move(self, node: int, state: int) -> None:
        """Give a node another state."""
        graph, old, memory = self.graph, self.chosen[node], self.graph.memory[node]
        self.held = self.held - memory[:, old] + memory[:, state]
        alone = graph.costs[node] + self._beside(self._near, node)
        late = self._beside(self._late, node) - graph.cover[node]
        self.chosen[node] = state
        if np.isfinite(self.cost) and np.isfinite(alone[state] + late[state]):
            self.seconds += float(alone[state] - alone[old])
            self.uncovered += float(late[state] - late[old])
        else:  # differences of what is infinite say nothing
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


def _near(graph: Graph, late: bool) -> _Near:
    found: _Near = [{} for _ in graph.costs]
    for (first, second), seconds in (graph.late if late else graph.edges).items():
        found[first][second], found[second][first] = seconds, seconds.T
    return found
