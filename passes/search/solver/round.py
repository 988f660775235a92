"""Rounding of a fractional solution of the relaxation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shardc.passes.search.distances import Matrix

_SWEEPS = 5


def rounded(
    costs: Mapping[int, np.ndarray], shares: Mapping[int, np.ndarray], near: Sequence[Mapping[int, Matrix]]
) -> dict[int, int] | None:
    """Return a state for each node; None if no state of a node is possible with its neighbours' states.

    ``shares``: the relaxation's value of each state. Nodes with the least fractional values are rounded
    first, each to the possible state with the largest value. Then each node in turn takes the cheapest state
    given its neighbours' (Besag's iterated conditional modes, 1986).
    """
    found: dict[int, int] = {}
    for node in sorted(costs, key=lambda node: (-float(shares[node].max()), node)):
        beside = _beside(node, costs, near, found)
        if not np.isfinite(beside).any():
            return None
        found[node] = int(np.where(np.isfinite(beside), shares[node], -1.0).argmax())
    for _ in range(_SWEEPS):
        before = dict(found)
        for node in costs:
            beside = _beside(node, costs, near, found)
            if beside.min() < beside[found[node]]:
                found[node] = int(beside.argmin())
        if found == before:
            break
    return found


def _beside(
    node: int, costs: Mapping[int, np.ndarray], near: Sequence[Mapping[int, Matrix]], found: Mapping[int, int]
) -> np.ndarray:
    """Return the cost of each state of a node, given the states of the neighbours that have one."""
    total = costs[node]
    for other, seconds in near[node].items():
        if other in found:
            total = total + seconds[:, found[other]]
    return total
