"""Selection of a few configurations for many shapes, with the loss against each shape's own best."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import comb, inf
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Choice = TypeVar("Choice", bound=Hashable)

EXHAUSTIVE = 200_000
"""Maximum number of sets for an exhaustive search. Beyond it, points are added greedily."""


@dataclass(frozen=True)
class Cover(Generic[Key, Choice]):
    """Selected ``points``, and each task's ``choice`` among them.

    ``worst``: the largest ratio of a task's time to that of its own best point; ``worst_task`` has it.
    """

    points: tuple[Choice, ...]
    choice: Mapping[Key, Choice]
    worst: float
    worst_task: Key


def cover(
    ratios: Mapping[Key, Mapping[Choice, float]], bound: float = 1.05, most: int | None = None
) -> Cover[Key, Choice]:
    """Return the fewest points with which every task is within ``bound`` of its best.

    ``ratios``: for each task, the ratio of each point measured for it; other points cannot be its choice.
    ``most``: maximum number of points. The result is optimal up to EXHAUSTIVE sets of a size, and greedy
    beyond.
    """
    if not ratios or not all(ratios.values()):
        raise ValueError("each task needs a point that was measured")
    losses = {key: {point: r / min(of.values()) for point, r in of.items()} for key, of in ratios.items()}
    points = list(dict.fromkeys(point for of in losses.values() for point in of))
    limit = min(len(points), most or len(losses), len(losses))
    best: tuple[Choice, ...] = ()
    for size in range(1, limit + 1):
        if comb(len(points), size) <= EXHAUSTIVE:
            best = min(combinations(points, size), key=lambda chosen: _loss(losses, chosen))
        else:
            best = (*best, min((p for p in points if p not in best), key=lambda p: _loss(losses, (*best, p))))
        if _loss(losses, best)[0] <= bound:
            break
    choice = {
        key: min((p for p in best if p in of), key=of.__getitem__, default=None) for key, of in losses.items()
    }
    loss = {key: inf if p is None else losses[key][p] for key, p in choice.items()}
    worst = max(loss, key=loss.__getitem__)
    return Cover(best, {key: p for key, p in choice.items() if p is not None}, loss[worst], worst)


def _loss(losses: Mapping[Key, Mapping[Choice, float]], chosen: tuple[Choice, ...]) -> tuple[float, float]:
    """Return the largest loss of any task, and the sum of losses to break ties."""
    each = [min((of[p] for p in chosen if p in of), default=inf) for of in losses.values()]
    return max(each), sum(min(loss, 1e3) for loss in each)
