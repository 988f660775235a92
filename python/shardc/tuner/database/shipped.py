"""Tuned points that come with shardc, for kernels that this machine's own database lacks.

They are in a file of JSON lines, sorted by key: the hash of a kernel's text. A start from the caches computes
only the file's hash. ``test/bench/tune_ship.py`` writes the file.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypedDict

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.task import Task
from shardc.tuner.database.database import NEAR, Found
from shardc.tuner.database.place import shipped_file
from shardc.tuner.signature import distance, signature
from shardc.tuner.task_tuning import generator


class Entry(TypedDict):
    """Best point of a kernel on a target."""

    structure: str
    target: str
    threads: int
    label: str
    generator: str
    skeleton: str
    sizes: list[int]
    sketch: str
    point: list[tuple[str, int]]
    ratio: float
    trials: int


def best_shipped(task: Task) -> Found | None:
    """Return the shipped point for a task, or else for the nearest sizes.

    The rules are those of :meth:`~shardc.tuner.database.database.Database.best`: the point was measured on
    the same target, with the same number of threads and the present code generator.
    """
    known = entries(shipped_file()).get((task.target, task.threads, generator(task.target)))
    if not known:
        return None
    if task.structure in known:
        return _found(known[task.structure])
    form = signature(task)
    alike = [entry for entry in known.values() if entry["skeleton"] == form.skeleton]
    near = min(alike, key=lambda e: (distance(e["sizes"], form.sizes), e["structure"]), default=None)
    if near is None or distance(near["sizes"], form.sizes) > NEAR:
        return None
    return replace(_found(near), near=near["label"])


def ships_for(target: str) -> bool:
    """Return True if any points are shipped for a target."""
    return any(of == target for of, _, _ in entries(shipped_file()))


def _found(entry: Entry) -> Found:
    point = Point(entry["sketch"], tuple((name, value) for name, value in entry["point"]))
    return Found(point, entry["ratio"], entry["trials"], shipped=True)


@cache
def entries(file: Path | None) -> dict[tuple[str, int, str], dict[str, Entry]]:
    """Return the entries of a file by target, threads and generator, then by structure."""
    found: dict[tuple[str, int, str], dict[str, Entry]] = {}
    for line in file.read_text().splitlines() if file and file.is_file() else ():
        entry = json.loads(line)
        key = entry["target"], entry["threads"], entry["generator"]
        found.setdefault(key, {})[entry["structure"]] = entry
    return found
