"""``Trial``: what became of one point."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shardc.tuner.point import Point


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


@dataclass(frozen=True)
class Trial:
    """``ratio`` is the point's time over that of the task's default configuration, taken in turns in one process (so
    that trials of different days compare), and ``seconds`` the point's own median; both None unless it was measured.
    ``said``: why not.
    """

    point: Point
    outcome: Outcome
    ratio: float | None = None
    seconds: float | None = None
    said: str = ""

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.MEASURED
