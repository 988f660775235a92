"""``Built`` and ``Trial``: what became of compiling one point, and of trying it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from shardc.backends.tuning.point import Point


class Outcome(StrEnum):
    """Of building and running a point."""

    MEASURED = "measured"
    NOT_BUILT = "not built"
    """The compiler refused it, took too long, or crashed."""
    CRASHED = "crashed"
    """It ended its process."""
    TIMED_OUT = "timed out"
    WRONG = "wrong"
    """Its results differ from the reference."""
    BUILT = "built"
    """It was compiled for a GPU that is not here, within that GPU's limits."""


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


@dataclass(frozen=True)
class Trial:
    """``ratio``: the point's time over the untuned kernel's, in turns in one process, so that days compare;
    ``seconds``: the point's median; ``spread``: half the width of a bound on the ratio; None unless measured.
    ``said``: why not. ``figures``: those of :class:`Built`.
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
    """Those that were measured, by their ratios."""
    return sorted((t for t in trials if t.ok and t.ratio is not None), key=lambda t: (t.ratio, t.point))
