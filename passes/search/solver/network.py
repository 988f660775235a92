"""Cost function networks, solved by toulbar2 (de Givry and others) in a worker process.

A network has a variable for each node, with a value for each state, and a cost function for each node and
each edge. toulbar2 first reparametrizes the network by TRW-S (Kolmogorov 2006), then branches and bounds
(hybrid best-first search, Allouche et al. 2015). Its costs are integers.
"""

from __future__ import annotations

from math import ceil, inf

import numpy as np
import pytoulbar2
from pytoulbar2 import tb2

from shardc.passes.search.solver.question import Cheapest, Question
from shardc.passes.search.solver.reduced import Reduced

_TOP = 1 << 50
"""Cost in integers that stands for an impossible choice; all finite costs together are less."""
_ACCURACY = 3e-4
"""Relative improvement of the bound at which TRW-S stops."""
_HBFS = tb2.option.hbfs
"""Hybrid best-first search."""
_FEWEST_GAPS = 4
"""Lowest limit of wanted costs, in gaps: a gap above the limit would end the search."""
_GAP = 1e-3
"""Gap between a choice and its bound, relative to the least costs of all nodes, at which the search stops."""


def answer(question: Question) -> Cheapest:
    """Return the cheapest choice."""
    reduced = Reduced.of(question.network)
    if not reduced.is_possible:
        return Cheapest(None, inf)
    if reduced.bound_s >= question.most_s:
        return Cheapest(None, reduced.bound_s)
    if not reduced.nodes:
        return Cheapest(reduced.whole([]), reduced.least_s)
    return _Solver(question, reduced).cheapest()


class _Solver:
    """toulbar2 with a network that has a choice. It can be asked once."""

    def __init__(self, question: Question, reduced: Reduced) -> None:
        self._reduced, network = reduced, reduced.network
        self._limit_s = max(1, round(question.limit_s))  # toulbar2's limit is in whole seconds
        least = [float(costs.min()) for costs in network.costs]
        self._least_s = reduced.bound_s
        alone = [costs - of for costs, of in zip(network.costs, least, strict=True)]
        functions = [*alone, *network.edges.values()]
        ends = np.cumsum([function.size for function in functions]).tolist()
        starts = [0, *ends[:-1]]
        seconds = np.concatenate([function.ravel() for function in functions])
        is_finite = np.isfinite(seconds)
        seconds = np.where(is_finite, seconds, 0.0)
        largest = float(np.maximum.reduceat(seconds, starts).sum())
        self._gap_s = _GAP * sum(abs(float(costs.min())) for costs in question.network.costs)
        # A gap in integers above the cost that stands for an impossible choice would end every later search.
        most_s = max(largest, 4 * self._gap_s)
        self._scale = _TOP / 2 / most_s if most_s else 1.0
        gap = int(self._gap_s * self._scale)
        self._most_s, top = question.most_s, _TOP
        if self._most_s < inf:  # what toulbar2 proves absent may still be below by its gap
            wanted = ceil((self._most_s + 1.5 * self._gap_s - self._least_s) * self._scale)
            top = min(top, max(wanted, _FEWEST_GAPS * gap, 1))
        self._cfn = pytoulbar2.CFN(ubinit=top, verbose=-1)
        tb2.option.trwsAccuracy = _ACCURACY
        tb2.option.trwsOrder = True  # along chains of nodes: a third less time than in their order
        tb2.option.absgap = tb2.option.deltaUb = gap  # the second may be left over from another network
        tb2.option.hbfs = _HBFS  # toulbar2 turns it off where there is no choice
        # Costs are rounded down, so that bounds hold.
        whole = np.where(is_finite, np.floor(seconds * self._scale), _TOP).astype(np.int64).tolist()
        costs = [whole[start:end] for start, end in zip(starts, ends, strict=True)]
        self._add(costs, [*network.edges])

    def _add(self, costs: list[list[int]], edges: list[tuple[int, int]]) -> None:
        """Add nodes and edges with their ``costs``, as ``AddVariable`` and ``AddFunction`` do, which read
        every cost twice more.
        """
        network, nodes = self._cfn.CFN.wcsp, len(costs) - len(edges)
        for node, alone in enumerate(costs[:nodes]):
            network.makeEnumeratedVariable(f"x{node}", 0, len(alone) - 1)
        for node, alone in enumerate(costs[:nodes]):
            network.postUnaryConstraint(node, alone, False)
        for (first, second), both in zip(edges, costs[nodes:], strict=True):
            network.postBinaryConstraint(first, second, both, False)

    def cheapest(self) -> Cheapest:
        """Return the cheapest choice. Its bound follows from the gap if toulbar2 ended before its limit."""
        found, base_s = self._cfn.Solve(timeLimit=self._limit_s), self._least_s
        is_done = not tb2.option.limited
        bound = self._cfn.GetDDualBound()
        if found is None:
            return Cheapest(None, max(self._most_s, base_s) if is_done else bound / self._scale + base_s)
        if is_done:
            bound = max(bound, found[1] - self._gap_s * self._scale)
        chosen = self._reduced.whole([int(state) for state in found[0]])
        return Cheapest(chosen, bound / self._scale + base_s)
