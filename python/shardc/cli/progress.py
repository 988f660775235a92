"""The rounds of tuning as progress, shown as that of everything else is (``runtime/report/progress.py``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shardc.runtime.report import progress

if TYPE_CHECKING:
    from shardc.commands.tune import Round


@contextmanager
def tuning() -> Iterator[Callable[[Round], None]]:
    """What the search calls with each round; how far it is, is shown from two seconds on."""
    with progress.work("tuning"):
        yield lambda event: progress.step(", ".join(filter(None, [_said(event), _left(event)])))


def _said(event: Round) -> str:
    """A round in a line: the kernel, its best so far, and what became of the step."""
    tried = event.progress
    kernel = f"{tried.job.task.label}: {tried.best_ratio:.3f}"
    return f"{event.trials_done} trials; {kernel}; all kernels: {event.step_ratio:.3f} of untuned"


def _left(event: Round) -> str:
    """What is left of the budget."""
    trials = "" if event.trials_left is None else f"{event.trials_left} trials left"
    seconds = "" if event.seconds_left is None else f"{event.seconds_left:.0f} s left"
    return ", ".join(filter(None, [trials, seconds]))
