"""Progress of tuning, shown by ``runtime/report/progress.py`` as for other work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shardc.runtime.report import progress

if TYPE_CHECKING:
    from shardc.commands.tune import Round


@contextmanager
def tuning() -> Iterator[Callable[[Round], None]]:
    """Yield the search's callback for rounds.

    Progress is shown when the search takes longer than two seconds.
    """
    with progress.work("tuning"):
        yield lambda event: progress.step(", ".join(filter(None, [_said(event), _left(event)])))


def _said(event: Round) -> str:
    """Describe a round in one line: trials, the kernel's best ratio, and the whole step's ratio."""
    tried = event.progress
    kernel = f"{tried.job.task.label}: {tried.best_ratio:.3f}"
    return f"{event.trials_done} trials; {kernel}; all kernels: {event.step_ratio:.3f} of untuned"


def _left(event: Round) -> str:
    """Describe the remaining budget."""
    trials = "" if event.trials_left is None else f"{event.trials_left} trials left"
    seconds = "" if event.seconds_left is None else f"{event.seconds_left:.0f} s left"
    return ", ".join(filter(None, [trials, seconds]))
