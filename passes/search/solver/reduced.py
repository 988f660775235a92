"""The part of a cost function network in which there is a choice that others depend on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardc.passes.search.solver.question import Network


@dataclass(frozen=True)
class Reduced:
    """Network without the nodes that have one state, or no edges. It has the same cheapest choices.

    ``nodes``: the numbers of the nodes that are left, which ``network`` numbers anew. ``chosen``: for each
    node of the whole network the only or the cheapest state; those that are left have any. ``least_s``: the
    seconds of nodes that are gone.
    """

    network: Network
    nodes: list[int]
    chosen: list[int]
    least_s: float

    @staticmethod
    def of(network: Network) -> Reduced:
        """Reduce a network."""
        costs, joined = list(network.costs), set[int]()
        edges = dict[tuple[int, int], np.ndarray]()
        for (first, second), seconds in network.edges.items():
            if len(seconds) == 1:
                costs[second] = costs[second] + seconds[0]
            elif seconds.shape[1] == 1:
                costs[first] = costs[first] + seconds[:, 0]
            else:
                edges[first, second] = seconds
                joined |= {first, second}
        nodes = sorted(joined)
        number = {node: at for at, node in enumerate(nodes)}
        gone = [float(cost.min()) for node, cost in enumerate(costs) if node not in joined]
        left = {(number[first], number[second]): seconds for (first, second), seconds in edges.items()}
        chosen = [int(cost.argmin()) for cost in costs]
        return Reduced(Network([costs[node] for node in nodes], left), nodes, chosen, sum(gone))

    @property
    def is_possible(self) -> bool:
        """Return whether each node has a state that is possible by itself."""
        return self.least_s < np.inf and all(np.isfinite(costs).any() for costs in self.network.costs)

    def whole(self, chosen: list[int]) -> list[int]:
        """Return the states of all nodes, given those of the nodes that are left."""
        found = list(self.chosen)
        for node, state in zip(self.nodes, chosen, strict=True):
            found[node] = state
        return found
