"""``TaskScheduler``: which kernel of a model gets the next trials, and when none is worth them any more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median_high
from typing import Generic, TypeVar

from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Trial, fastest_first

FIRST = 0.3
"""Expected share of its time that a kernel loses by tuning that was never tried."""
TAIL = 8
"""The fastest trials, at most, that the tail is read from; no more than a quarter of all."""
FEWEST = 3
"""Trials that make a tail."""
AHEAD = 32
"""Further trials of each kernel that the expected gain of going on is of."""


Of = TypeVar("Of", bound="Progress")


@dataclass(frozen=True)
class Job:
    """A kernel to tune, and how often a step of the model calls it.

    ``size``: elements of a call over the task's, on average. ``needs``: the ratio to its default that a
    kernel must be under before the program has it, where a library's call beat the default.
    """

    task: Task
    calls: int = 1
    size: float = 1.0
    needs: float = 1.0

    @property
    def weight(self) -> float:
        """Calls of the task's size."""
        return self.calls * self.size


@dataclass
class Progress:
    """Trials of one job. ``estimate_s``: modelled time of a call, until one is measured."""

    job: Job
    estimate_s: float
    trials: list[Trial] = field(default_factory=list)
    exhausted: bool = False

    @property
    def best(self) -> Trial | None:
        """The fastest trial; None if none was measured."""
        return next(iter(fastest_first(self.trials)), None)

    @property
    def best_ratio(self) -> float:
        """Over the default configuration, which is there in any case."""
        best = self.best
        return 1.0 if best is None or best.ratio is None else min(1.0, best.ratio)

    @property
    def used_ratio(self) -> float:
        """Of what the program has: the kernel, or a library's call."""
        return min(self.job.needs, self.best_ratio)

    @property
    def default_s(self) -> float | None:
        """Measured time of a call in the default configuration; None before any trial."""
        times = [t.seconds / t.ratio for t in self.trials if t.ok and t.seconds and t.ratio]
        return median_high(times) if times else None

    @property
    def ratios(self) -> list[float]:
        """The default's, then of each trial; ``inf`` where it failed."""
        found = [math.inf if t.ratio is None or not t.ok else t.ratio for t in self.trials]
        return [1.0, *found] if found else []


class TaskScheduler(Generic[Of]):
    """Ansor's objective (section 6): each round goes to the kernel expected to save a step most time."""

    def __init__(self, jobs: Sequence[Of], batch: int) -> None:
        self._jobs, self._batch = jobs, batch

    def next(self) -> Of | None:
        """The job of the next round; None if every space is exhausted. Of equals the first."""
        open_ = [p for p in self._jobs if not p.exhausted]
        return max(open_, key=lambda p: self._saved_s(p, self._batch), default=None)

    def regret(self) -> float:
        """The share of the step's time that AHEAD more trials of each kernel are expected to save."""
        total_s = sum(self._step_s(p) for p in self._jobs)
        saved_s = sum(self._saved_s(p, AHEAD) for p in self._jobs if not p.exhausted)
        return saved_s / total_s if total_s else 0.0

    def _saved_s(self, progress: Progress, more: int) -> float:
        """Seconds that ``more`` trials are expected to save; none while a library's call stays faster."""
        tuned = progress.best_ratio * (1.0 - expected_gain(progress.ratios, more))
        return self._default_s(progress) * max(0.0, progress.used_ratio - tuned)

    def _step_s(self, progress: Progress) -> float:
        """Seconds of a step in this kernel, or in the call that it stands for, at its best so far."""
        return self._default_s(progress) * progress.used_ratio

    def _default_s(self, progress: Progress) -> float:
        """Seconds of a step in this kernel, untuned."""
        call_s = progress.default_s
        return progress.job.weight * (progress.estimate_s * self._bias() if call_s is None else call_s)

    def _bias(self) -> float:
        """Measured over estimated time of the jobs that have both."""
        times = [(p.default_s, p.estimate_s) for p in self._jobs if p.estimate_s > 0]
        both = [measured_s / estimate_s for measured_s, estimate_s in times if measured_s is not None]
        return median_high(both) if both else 1.0


def expected_gain(ratios: Sequence[float], more: int) -> float:
    """The share of the best time that ``more`` trials are expected to save, after ``ratios`` (in order;
    ``inf`` for what failed).

    The logarithms of the fastest ratios are taken to have an exponential tail (Pickands 1975, peaks over a
    threshold) of scale ``s``, their mean distance to the threshold: ``n`` trials after ``N`` move the best by
    ``s log(1 + n/N)``. Half of what the last trials found is expected again.
    """
    measured = sorted(math.log(r) for r in ratios if r > 0 and math.isfinite(r))
    if not ratios:
        return FIRST
    if len(measured) < FEWEST:
        return FIRST * more / (len(ratios) + more)
    count = max(2, min(TAIL, len(measured) // 4))
    scale = sum(measured[count] - value for value in measured[:count]) / count
    tail = scale * math.log1p(more / len(ratios))
    return 1.0 - math.exp(-max(tail, _lately(ratios, more)))


def _lately(ratios: Sequence[float], more: int) -> float:
    """Half of what the last ``more`` trials took off the logarithm of the best ratio."""
    before, now = min(ratios[:-more], default=math.inf), min(ratios)
    return 0.5 * math.log(before / now) if math.isfinite(before) and now > 0 else 0.0
