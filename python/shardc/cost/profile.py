"""Measured times of calls, and the time of a step that they add up to.

Processes that share cores slow one another down, so a measurement holds only for the number of processes that
ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.cost.step.step_time import StepTime

CALLS = "calls"
"""Cause of time in calls other than collectives."""


@dataclass(frozen=True)
class Conditions:
    """Conditions of a measurement: machine, processes that share its cores, and threads of each."""

    machine: str
    processes: int
    threads: int


@dataclass(frozen=True)
class ProgramCall:
    """Call of a program, as text with the types of its tensors, and the mesh axes of a collective."""

    text: str
    axes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PredictedStep:
    """Prediction of a step: seconds, and peak bytes of tensors on the fullest rank."""

    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Profile:
    """Seconds by the text of a call, under ``conditions``."""

    conditions: Conditions
    seconds: Mapping[str, float]

    def missing(self, calls: Sequence[ProgramCall]) -> list[str]:
        """Return the calls that were not measured, each once, in program order."""
        return [text for text in dict.fromkeys(call.text for call in calls) if text not in self.seconds]

    def step_time(self, ranks: Sequence[Sequence[ProgramCall]]) -> StepTime:
        """Return the time of a step from the measured calls of the slowest of ``ranks``.

        The times are summed: if processes share the cores, or Gloo's threads use them, no computation is free
        beside a collective.
        """
        return max((self._time(calls) for calls in ranks), key=lambda time: time.seconds)

    def _time(self, calls: Sequence[ProgramCall]) -> StepTime:
        causes: dict[str, float] = {}
        for call in calls:
            cause = "*".join(call.axes) or CALLS
            causes[cause] = causes.get(cause, 0.0) + self.seconds[call.text]
        return StepTime(sum(causes.values()), causes, is_measured=True)
