"""Fewest configurations that serve all measured sizes of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.task import Task
from shardc.tuner.database.cover import Cover, cover
from shardc.tuner.database.database import Database
from shardc.tuner.signature import signature


@dataclass(frozen=True)
class Range:
    """Kernels that differ only in sizes, and a few points that serve all of them."""

    tasks: Sequence[Task]
    cover: Cover[Task, Point]


def ranges(database: Database, target: str, bound: float = 1.05, most: int | None = None) -> list[Range]:
    """Return, for each kernel measured on ``target`` at several sizes, the fewest points for all sizes.

    With them each size is within ``bound`` of its best. ``most``: maximum number of points of a kernel.
    Kernels are in the order in which they were added.
    """
    found: dict[tuple[str, int], dict[Task, dict[Point, float]]] = {}
    for task in database.tasks(target):
        latest = {t.point: t for t in database.trials(task)}
        ratios = {p: t.ratio for p, t in latest.items() if t.ok and t.ratio is not None}
        if ratios:
            found.setdefault((signature(task).skeleton, task.threads), {})[task] = ratios
    return [Range(tuple(of), cover(of, bound, most)) for of in found.values() if len(of) > 1]
