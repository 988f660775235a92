"""Recording of one step on one rank: the times of lines, collectives and pipeline actions, and its memory.

On a CPU, moments are clock times. On a GPU, they are events of the current stream, so they give the time at
which the device reached them, without synchronization.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from ..comm.collectives import Pending, Start
from .resident import resident_bytes

Moment = float | torch.cuda.Event
"""Seconds since 1970, or an event from which they are computed later."""


@dataclass(frozen=True)
class Note:
    """Recorded interval. ``lane``: ``actions``, ``ops``, ``collectives`` or ``waits``."""

    lane: str
    name: str
    start: Moment
    end: Moment
    about: dict[str, str | int] = field(default_factory=dict)


class Recorder:
    """Recorder, called by a rank's program and its :class:`~..comm.collectives.Rank` during a step."""

    def __init__(self, device: torch.device, actions: Iterator[str]) -> None:
        self._device, self._actions = device, actions
        self.notes: list[Note] = []
        self.memory: list[tuple[Moment, int]] = []
        self._open: tuple[str, Moment] | None = None
        self._zero = (time.time(), self.now())

    def now(self) -> Moment:
        if self._device.type != "cuda":
            return time.time()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds(self, moment: Moment) -> float:
        """Return a moment in seconds since 1970. Call it when the device is done."""
        if not isinstance(moment, torch.cuda.Event):
            return moment
        start_s, start = self._zero
        assert isinstance(start, torch.cuda.Event)
        return start_s + start.elapsed_time(moment) / 1e3

    def __call__(self, name: str = "") -> None:
        """End the present line, and begin another one if ``name`` is not empty."""
        now = self.now()
        if self._open is not None:
            self.notes.append(Note("ops", self._open[0], self._open[1], now))
        self._open = (name, now) if name else None
        self.memory.append((now, self._held()))

    def action(self, stage: Callable[..., object]) -> Callable[..., object]:
        """Wrap ``stage`` to record its calls. The calls of all stages are the actions, in order."""

        def run(*arguments: object) -> object:
            start = self.now()
            results = stage(*arguments)
            self.notes.append(Note("actions", next(self._actions), start, self.now()))
            return results

        return run

    def started(self, pending: Pending) -> Pending:
        """Wrap the handle of a collective that was started now, to record when its result is available."""
        return Recorded(pending, self)

    def _held(self) -> int:
        on_gpu = self._device.type == "cuda"
        return torch.cuda.memory_allocated(self._device) if on_gpu else resident_bytes()


class Recorded(Pending):
    """Started collective that is recorded from its start to the end of the wait for it."""

    __slots__ = ("begun", "recorder")

    def __init__(self, pending: Pending, recorder: Recorder) -> None:
        work, kept, result = pending.work, pending.kept, pending.result
        super().__init__(work, kept, result, pending.finish, pending.start, pending.flights)
        self.recorder, self.begun = recorder, recorder.now()

    def wait(self) -> torch.Tensor:
        waited = self.recorder.now()
        made = super().wait()
        end, about = self.recorder.now(), _about(self.start, self.kept)
        self.recorder.notes.append(Note("collectives", self.start[0], self.begun, end, about))
        self.recorder.notes.append(Note("waits", f"wait for {self.start[0]}", waited, end))
        return made


def _about(start: Start, kept: torch.Tensor) -> dict[str, str | int]:
    _, group, _, _ = start
    return {"bytes": kept.nbytes, "ranks": ", ".join(map(str, group.ranks))}
