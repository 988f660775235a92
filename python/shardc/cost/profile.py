"""Measured seconds of calls, and the time of a step that consists of them.

Processes that share cores slow one another down, so a figure holds for as many processes as ran when it was
measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.cost.step.step_time import StepTime

CALLS = "calls"
"""The cause of time in calls that are no collectives."""


@dataclass(frozen=True)
class Conditions:
    """Where and how calls were measured: the machine in words, processes that ran at once and shared its
    cores, and threads of each.
    """

    machine: str
    processes: int
    threads: int


@dataclass(frozen=True)
class ProgramCall:
    """A call of a program, as text with the types of its tensors, and the mesh axes of a collective."""

    text: str
    axes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PredictedStep:
    """What a step is expected to take: seconds, and bytes of tensors at the peak of the fullest rank."""

    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Profile:
    """Seconds by the text of a call, under ``conditions``."""

    conditions: Conditions
    seconds: Mapping[str, float]

    def missing(self, calls: Sequence[ProgramCall]) -> list[str]:
        """Calls that were not measured, each once, in the order of the program."""
        return [text for text in dict.fromkeys(call.text for call in calls) if text not in self.seconds]

    def step_time(self, ranks: Sequence[Sequence[ProgramCall]]) -> StepTime:
        """The time of a step by what the calls of the slowest of ``ranks`` take, all of them measured.

        They are added up: where processes share the cores, or Gloo's threads take part of them, nothing is
        computed beside a collective for free.
        """
        return max((self._time(calls) for calls in ranks), key=lambda time: time.seconds)

    def _time(self, calls: Sequence[ProgramCall]) -> StepTime:
        causes: dict[str, float] = {}
        for call in calls:
            cause = "*".join(call.axes) or CALLS
            causes[cause] = causes.get(cause, 0.0) + self.seconds[call.text]
        return StepTime(sum(causes.values()), causes, is_measured=True)
