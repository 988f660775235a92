"""Cost function networks without the nodes that have at most two neighbours.

A node whose cost depends on two others becomes an edge between these: the least cost for each pair of their
states (variable elimination: Dechter, Bucket elimination, 1999). That merges chains of calls exactly.
toulbar2 has the same step for its preprocessing, but crashes with it on some networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shardc.passes.search.solver.question import Network

_MOST = 1 << 20
"""Largest number of states of a node and its two neighbours together, as their product."""


@dataclass
class Reduced:
    """Network with the same cheapest choices of the nodes that are left.

    ``network``: those nodes, numbered anew. ``nodes``: their numbers in the whole network. ``least_s``: the
    seconds that nodes without neighbours add.
    """

    network: Network
    nodes: list[int]
    least_s: float
    _gone: list[_Gone] = field(repr=False)

    @staticmethod
    def of(network: Network) -> Reduced:
        """Reduce a network."""
        left = _Left(network)
        left.reduce()
        nodes = [node for node, is_left in enumerate(left.is_left) if is_left]
        number = {node: at for at, node in enumerate(nodes)}
        edges = {
            (number[first], number[second]): seconds
            for first in nodes
            for second, seconds in left.near[first].items()
            if first < second
        }
        return Reduced(Network([left.costs[node] for node in nodes], edges), nodes, left.least_s, left.gone)

    @property
    def bound_s(self) -> float:
        """Return the seconds if each node has its cheapest state, and edges take nothing."""
        return self.least_s + sum(float(costs.min()) for costs in self.network.costs)

    @property
    def is_possible(self) -> bool:
        """Return whether each node has a state that is possible by itself."""
        return self.bound_s < np.inf

    def whole(self, chosen: Sequence[int]) -> list[int]:
        """Return the states of all nodes, given those of the nodes that are left."""
        found = [0] * (len(self.nodes) + len(self._gone))
        for node, state in zip(self.nodes, chosen, strict=True):
            found[node] = state
        for gone in reversed(self._gone):
            found[gone.node] = gone.state(found)
        return found


@dataclass(frozen=True)
class _Gone:
    """Node that was removed: its costs, and the seconds beside each neighbour, [neighbour's state, state]."""

    node: int
    costs: np.ndarray
    near: Sequence[tuple[int, np.ndarray]]

    def state(self, chosen: Sequence[int]) -> int:
        """Return the cheapest state, given those of the neighbours."""
        return int(sum((seconds[chosen[other]] for other, seconds in self.near), self.costs).argmin())


class _Left:
    """Nodes that are left of a network, and those that are gone, in order."""

    def __init__(self, network: Network) -> None:
        self.costs = list(network.costs)
        self.near: list[dict[int, np.ndarray]] = [{} for _ in self.costs]
        """For each node, the seconds beside each neighbour, [state, neighbour's state]."""
        for (first, second), seconds in network.edges.items():
            self.near[first][second], self.near[second][first] = seconds, seconds.T
        self.is_left = [True] * len(self.costs)
        self.gone: list[_Gone] = []
        self.least_s = 0.0

    def reduce(self) -> None:
        """Remove nodes until none can go."""
        waiting = [node for node in range(len(self.costs)) if self._can_go(node)]
        while waiting:
            node = waiting.pop()
            if self.is_left[node] and self._can_go(node):
                beside = [*self.near[node]]
                self._remove(node)
                waiting += filter(self._can_go, beside)

    def _can_go(self, node: int) -> bool:
        sizes = [len(self.costs[other]) for other in self.near[node]]
        own = len(self.costs[node])
        return own == 1 or len(sizes) < 2 or (len(sizes) == 2 and own * sizes[0] * sizes[1] <= _MOST)

    def _remove(self, node: int) -> None:
        costs, near = self.costs[node], self.near[node]
        self.gone.append(_Gone(node, costs, [(other, seconds.T) for other, seconds in near.items()]))
        self.is_left[node] = False
        for other in near:
            del self.near[other][node]
        if len(costs) == 1:
            self.least_s += float(costs[0])
            for other, seconds in near.items():
                self.costs[other] = self.costs[other] + seconds[0]
        elif not near:
            self.least_s += float(costs.min())
        elif len(near) == 1:
            ((other, seconds),) = near.items()
            self.costs[other] = self.costs[other] + (seconds + costs[:, None]).min(axis=0)
        else:
            (first, beside_first), (second, beside_second) = near.items()
            each = (beside_first + costs[:, None])[:, :, None] + beside_second[:, None, :]
            self._join(first, second, each.min(axis=0))
        self.near[node] = {}

    def _join(self, first: int, second: int, seconds: np.ndarray) -> None:
        """Add to the seconds of an edge."""
        if second in self.near[first]:
            seconds = self.near[first][second] + seconds
        self.near[first][second], self.near[second][first] = seconds, seconds.T
