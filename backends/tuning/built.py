"""``Built``: what became of compiling a point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shardc.backends.tuning.point import Point


@dataclass(frozen=True)
class Built:
    """``path`` is what was compiled, None if nothing was, and ``said`` why not. ``point`` is None for the
    kernel without any configuration. Two with the same ``code`` are the same program.

    ``figures`` are what a GPU's binary has: ``registers``, ``spill_bytes``, ``shared_bytes``, and how many
    instructions of each kind (``loads``, ``wide_loads``, ``stores``, ``wide_stores``, ``matrix_ops``).
    """

    point: Point | None
    path: Path | None = None
    code: str = ""
    seconds: float = 0.0
    said: str = ""
    figures: Mapping[str, int] = field(default_factory=dict)
