"""``Built`` and ``Trial``: results of compiling a point, and of trying it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from shardc.backends.tuning.point import Point


class Outcome(StrEnum):
    """Outcome of building and running a point."""

    MEASURED = "measured"
    NOT_BUILT = "not built"
    """The compiler failed, took too long, or crashed."""
    CRASHED = "crashed"
    """It ended its process."""
    TIMED_OUT = "timed out"
    WRONG = "wrong"
    """Its results differ from the reference."""
    BUILT = "built"
    """It was compiled for a GPU that this machine lacks, within that GPU's limits."""


@dataclass(frozen=True)
class Built:
    """Built point (None: the kernel without configuration).

    ``path``: the built file, or None with the reason in ``said``. Points with the same ``code`` are the same
    program. ``figures``: for a GPU's binary, ``registers``, ``spill_bytes``, ``shared_bytes``, and counts of
    instructions (``loads``, ``wide_loads``, ``stores``, ``wide_stores``, ``matrix_ops``).
    """

    point: Point | None
    path: Path | None = None
    code: str = ""
    seconds: float = 0.0
    said: str = ""
    figures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """Result of trying a point.

    ``ratio``: the point's time relative to the untuned kernel's, timed alternately in one process, so that
    trials of different days compare. ``seconds``: the point's median. ``spread``: half the width of a bound
    on the ratio. All three are None unless measured; ``said`` then has the reason. ``figures``: see
    :class:`Built`.
    """

    point: Point
    outcome: Outcome
    ratio: float | None = None
    seconds: float | None = None
    spread: float | None = None
    said: str = ""
    figures: Mapping[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.MEASURED


def fastest_first(trials: Iterable[Trial]) -> list[Trial]:
    """Return the measured trials, sorted by ratio."""
    return sorted((t for t in trials if t.ok and t.ratio is not None), key=lambda t: (t.ratio, t.point))
