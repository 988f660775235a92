"""``Built``: what became of compiling a point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shardc.backends.tuning.point import Point


@dataclass(frozen=True)
class Built:
    """A built point (None: the kernel without configuration): ``path``, or None and why in ``said``. Two with
    the same ``code`` are the same program.

    ``figures`` of a GPU's binary: ``registers``, ``spill_bytes``, ``shared_bytes``, and counts of
    instructions (``loads``, ``wide_loads``, ``stores``, ``wide_stores``, ``matrix_ops``).
    """

    point: Point | None
    path: Path | None = None
    code: str = ""
    seconds: float = 0.0
    said: str = ""
    figures: Mapping[str, int] = field(default_factory=dict)
