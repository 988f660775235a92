"""``TaskScheduler``: selects the kernel of a model to try next, and estimates what more trials would save."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median_high
from typing import Generic, TypeVar

from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Trial, fastest_first

FIRST = 0.3
"""Expected saving, as a share of its time, for a kernel without trials."""
TAIL = 8
"""Maximum number of fastest trials that form the tail, and at most a quarter of all."""
FEWEST = 3
"""Minimum number of trials for a tail."""
AHEAD = 32
"""Number of further trials of each kernel for which the expected saving is computed."""


Of = TypeVar("Of", bound="Progress")


@dataclass(frozen=True)
class Job:
    """Kernel to tune, and how often a step of the model calls it.

    ``size``: elements of an average call, relative to the task's. ``needs``: if a library call beat the
    default, the ratio to the default below which the program uses the kernel instead.
    """

    task: Task
    calls: int = 1
    size: float = 1.0
    needs: float = 1.0

    @property
    def weight(self) -> float:
        """Number of calls in a step, scaled to the task's size."""
        return self.calls * self.size


@dataclass
class Progress:
    """Trials of one job. ``estimate_s``: estimated time of a call, used until one is measured."""

    job: Job
    estimate_s: float
    trials: list[Trial] = field(default_factory=list)
    exhausted: bool = False

    @property
    def best(self) -> Trial | None:
        """Fastest trial; None if none was measured."""
        return next(iter(fastest_first(self.trials)), None)

    @property
    def best_ratio(self) -> float:
        """Best ratio to the default configuration, at most 1."""
        best = self.best
        return 1.0 if best is None or best.ratio is None else min(1.0, best.ratio)

    @property
    def used_ratio(self) -> float:
        """Ratio of what the program uses: the kernel, or a library call."""
        return min(self.job.needs, self.best_ratio)

    @property
    def default_s(self) -> float | None:
        """Measured time of a call in the default configuration; None before any trial."""
        times = [t.seconds / t.ratio for t in self.trials if t.ok and t.seconds and t.ratio]
        return median_high(times) if times else None

    @property
    def ratios(self) -> list[float]:
        """Ratios of the default and of each trial; ``inf`` for a failed one."""
        found = [math.inf if t.ratio is None or not t.ok else t.ratio for t in self.trials]
        return [1.0, *found] if found else []


class TaskScheduler(Generic[Of]):
    """Scheduler by Ansor's objective (section 6): the next round goes to the largest expected saving."""

    def __init__(self, jobs: Sequence[Of], batch: int) -> None:
        self._jobs, self._batch = jobs, batch

    def next(self) -> Of | None:
        """Return the job of the next round; None if every space is exhausted. Ties go to the first."""
        open_ = [p for p in self._jobs if not p.exhausted]
        return max(open_, key=lambda p: self._saved_s(p, self._batch), default=None)

    def regret(self) -> float:
        """Return the share of the step's time that AHEAD more trials of each kernel are expected to save."""
        total_s = sum(self._step_s(p) for p in self._jobs)
        saved_s = sum(self._saved_s(p, AHEAD) for p in self._jobs if not p.exhausted)
        return saved_s / total_s if total_s else 0.0

    def _saved_s(self, progress: Progress, more: int) -> float:
        """Return the expected saving of ``more`` trials, in seconds; 0 while a library call is faster."""
        tuned = progress.best_ratio * (1.0 - expected_gain(progress.ratios, more))
        return self._default_s(progress) * max(0.0, progress.used_ratio - tuned)

    def _step_s(self, progress: Progress) -> float:
        """Return the seconds of a step in this kernel, or its library call, at the best so far."""
        return self._default_s(progress) * progress.used_ratio

    def _default_s(self, progress: Progress) -> float:
        """Return the seconds of a step in this kernel, untuned."""
        call_s = progress.default_s
        return progress.job.weight * (progress.estimate_s * self._bias() if call_s is None else call_s)

    def _bias(self) -> float:
        """Return the median ratio of measured to estimated time, over the jobs that have both."""
        times = [(p.default_s, p.estimate_s) for p in self._jobs if p.estimate_s > 0]
        both = [measured_s / estimate_s for measured_s, estimate_s in times if measured_s is not None]
        return median_high(both) if both else 1.0


def expected_gain(ratios: Sequence[float], more: int) -> float:
    """Return the share of the best time that ``more`` trials are expected to save.

    ``ratios``: ratios of the trials so far, in order; ``inf`` for a failed one.

    The logarithms of the fastest ratios are modelled by an exponential tail (peaks over a threshold, Pickands
    1975). Its scale ``s`` is their mean distance to the threshold. Then ``n`` trials after ``N`` improve the
    best logarithm by ``s log(1 + n/N)``. At least half of what the last trials gained is expected again.
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
    """Return half of the decrease of the best ratio's logarithm over the last ``more`` trials."""
    before, now = min(ratios[:-more], default=math.inf), min(ratios)
    return 0.5 * math.log(before / now) if math.isfinite(before) and now > 0 else 0.0
