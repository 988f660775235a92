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

_TOP = 1 << 50
"""Cost in integers that stands for an impossible choice; all finite costs together are less."""
_ACCURACY = 1e-4
"""Relative improvement of the bound at which TRW-S stops."""
_HBFS = tb2.option.hbfs
"""Hybrid best-first search."""
_FEWEST_GAPS = 4
"""Lowest limit of wanted costs, in gaps: a gap above the limit would end the search."""
_GAP = 1e-3
"""Gap between a choice and its bound, relative to the least costs of all nodes, at which the search stops."""


def answer(question: Question) -> Cheapest:
    """Return the cheapest choice."""
    if any(not np.isfinite(costs).any() for costs in question.network.costs):
        return Cheapest(None, inf)
    return _Solver(question).cheapest()


class _Solver:
    """toulbar2 with a network. It can be asked once."""

    def __init__(self, question: Question) -> None:
        network = question.network
        self._limit_s = max(1, round(question.limit_s))  # toulbar2's limit is in whole seconds
        self._least = [float(costs[np.isfinite(costs)].min()) for costs in network.costs]
        alone = [costs - least for costs, least in zip(network.costs, self._least, strict=True)]
        functions = [*alone, *network.edges.values()]
        largest = sum(float(seconds[np.isfinite(seconds)].max(initial=0.0)) for seconds in functions)
        self._gap_s = _GAP * sum(map(abs, self._least))
        # A gap in integers above the cost that stands for an impossible choice would end every later search.
        most_s = max(largest, 4 * self._gap_s)
        self._scale = _TOP / 2 / most_s if most_s else 1.0
        gap = int(self._gap_s * self._scale)
        self._most_s, top = question.most_s, _TOP
        if self._most_s < inf:  # what toulbar2 proves absent may still be below by its gap
            wanted = ceil((self._most_s + 1.5 * self._gap_s - sum(self._least)) * self._scale)
            top = min(top, max(wanted, _FEWEST_GAPS * gap, 1))
        self._cfn = pytoulbar2.CFN(ubinit=top, verbose=-1)
        tb2.option.trwsAccuracy = _ACCURACY
        tb2.option.absgap = tb2.option.deltaUb = gap  # the second may be left over from another network
        tb2.option.hbfs = _HBFS  # toulbar2 turns it off where there is no choice
        for node, costs in enumerate(alone):
            self._cfn.AddVariable(f"x{node}", range(len(costs)))
        for node, costs in enumerate(alone):
            self._cfn.AddFunction([node], self._whole(costs))
        for edge, seconds in network.edges.items():
            self._cfn.AddFunction([*edge], self._whole(seconds))

    def cheapest(self) -> Cheapest:
        """Return the cheapest choice. Its bound follows from the gap if toulbar2 ended before its limit."""
        found, base_s = self._cfn.Solve(timeLimit=self._limit_s), sum(self._least)
        is_done = not tb2.option.limited
        bound = self._cfn.GetDDualBound()
        if found is None:
            return Cheapest(None, max(self._most_s, base_s) if is_done else bound / self._scale + base_s)
        if is_done:
            bound = max(bound, found[1] - self._gap_s * self._scale)
        return Cheapest([int(state) for state in found[0]], bound / self._scale + base_s)

    def _whole(self, seconds: np.ndarray) -> list[int]:
        """Return costs as integers, rounded down, so that bounds hold."""
        return np.where(np.isfinite(seconds), np.floor(seconds * self._scale), _TOP).ravel().tolist()
