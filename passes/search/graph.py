"""A cost function network: nodes with states, and costs of states and of pairs of states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shardc.passes.search.distances import Matrix


@dataclass
class Graph:
    """Nodes with states, and the costs of a choice of one state for each node.

    Args:
        points: Number of points of the step at which memory is counted.
        costs: For each node, the seconds of its states.
        memory: For each node, the bytes that a device holds for it, [point, state].
        edges: For each pair of nodes, the seconds of each pair of states.
        late: The same for collectives of gradients, which overlap with the kernels of the backward.
        cover: For each node, the seconds of its states' kernels that ``late`` collectives overlap with.
    """

    points: int = 0
    costs: list[np.ndarray] = field(default_factory=list)
    memory: list[np.ndarray] = field(default_factory=list)
    edges: dict[tuple[int, int], Matrix] = field(default_factory=dict)
    late: dict[tuple[int, int], Matrix] = field(default_factory=dict)
    cover: list[np.ndarray] = field(default_factory=list)

    def add_node(self, states: int) -> int:
        self.costs.append(np.zeros(states))
        self.cover.append(np.zeros(states))
        self.memory.append(np.zeros((self.points, states)))
        return len(self.costs) - 1

    def add_edge(self, first: int, second: int, seconds: Matrix, is_late: bool = False) -> None:
        """Add to the cost of an edge; if both nodes are the same, to the node's own costs."""
        edges = self.late if is_late else self.edges
        if first == second:
            self.costs[first] = self.costs[first] + np.diag(seconds)
        elif first > second:
            self.add_edge(second, first, seconds.T, is_late)
        else:
            old = edges.get((first, second))
            edges[first, second] = seconds if old is None else old + seconds

    def seconds(self, chosen: Sequence[int]) -> float:
        """Return the cost of a choice of states, without late collectives."""
        alone = sum(float(cost[state]) for cost, state in zip(self.costs, chosen, strict=True))
        return alone + _sum(self.edges, chosen)

    def uncovered(self, chosen: Sequence[int]) -> float:
        """Return by how many seconds late collectives exceed the kernels that they overlap with."""
        cover = sum(float(cover[state]) for cover, state in zip(self.cover, chosen, strict=True))
        return _sum(self.late, chosen) - cover

    def weighted(self, weight: float) -> Graph:
        """Return the graph in which each choice costs ``seconds + weight * uncovered``."""
        costs = [c - weight * cover for c, cover in zip(self.costs, self.cover, strict=True)]
        nothing = [np.zeros(len(c)) for c in costs]
        made = Graph(self.points, costs, self.memory, dict(self.edges), {}, nothing)
        for (first, second), seconds in self.late.items():
            impossible = np.isinf(seconds)
            made.add_edge(first, second, np.where(impossible, np.inf, weight * seconds))
        return made

    @property
    def least_bytes(self) -> float:
        """Return a lower bound of a device's memory, at the point where it is largest."""
        held = sum((memory.min(axis=1) for memory in self.memory), np.zeros(self.points))
        return float(held.max(initial=0.0))

    def total(self, chosen: Sequence[int]) -> float:
        """Return the total cost of a choice, with the uncovered part of late collectives."""
        return self.seconds(chosen) + max(0.0, self.uncovered(chosen))

    def bytes_at(self, chosen: Sequence[int]) -> np.ndarray:
        """Return the bytes that a device holds at each point."""
        held = (memory[:, state] for memory, state in zip(self.memory, chosen, strict=True))
        return sum(held, np.zeros(self.points))


def _sum(edges: Mapping[tuple[int, int], Matrix], chosen: Sequence[int]) -> float:
    return sum(float(seconds[chosen[a], chosen[b]]) for (a, b), seconds in edges.items())
