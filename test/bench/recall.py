"""How well a cost model ranks: against measured times of points that it did not see."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def recall(scores: Sequence[float], times: Sequence[float], first: int, best: int) -> float:
    """The share of the ``best`` fastest that are among the ``first`` by score (top-k recall)."""
    chosen = set(np.argsort(scores, kind="stable")[:first].tolist())
    fastest = np.argsort(times, kind="stable")[:best].tolist()
    return sum(n in chosen for n in fastest) / len(fastest)


def attained(scores: Sequence[float], times: Sequence[float], first: int) -> float:
    """The best time over the best among the ``first`` by score: 1 if the fastest is among them."""
    order = np.argsort(scores, kind="stable")[:first]
    return float(np.min(times) / np.asarray(times)[order].min())


def spearman(scores: Sequence[float], times: Sequence[float]) -> float:
    """The correlation of ranks: 1 if the order is right throughout, 0 if it says nothing."""
    one, other = (np.argsort(np.argsort(v, kind="stable"), kind="stable") for v in (scores, times))
    return float(np.corrcoef(one, other)[0, 1])
