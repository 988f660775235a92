"""What ``shardc tune`` says while it searches, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardc.commands.tune import Round

EVERY_S = 10.0
"""Between two lines where standard error is no terminal."""


@contextmanager
def progress(trials: int | None, seconds: float | None) -> Iterator[Callable[[Round], None]]:
    """A bar on a terminal; elsewhere, in a log, a line now and then."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        bar = shown.add_task("tuning", total=trials or seconds, left="")

        def on_round(event: Round) -> None:
            done = (
                event.trials_done
                if trials
                else None
                if seconds is None
                else seconds - (event.seconds_left or 0.0)
            )
            shown.update(bar, completed=done, description=describe(event), left=left(event))

        yield on_round


def _lines(now: Callable[[], float] = time.monotonic) -> Callable[[Round], None]:
    said_s = now()

    def on_round(event: Round) -> None:
        nonlocal said_s
        if now() - said_s >= EVERY_S:
            said_s = now()
            print(", ".join(filter(None, [describe(event), left(event)])), file=sys.stderr, flush=True)

    return on_round


def describe(event: Round) -> str:
    """A round in a line: the kernel, its best so far, and what became of the step."""
    tried = event.progress
    return (
        f"{event.trials_done} trials; {tried.job.task.label}: {tried.best_ratio:.3f}; "
        f"all kernels: {event.step_ratio:.3f} of untuned"
    )


def left(event: Round) -> str:
    """Of the budget."""
    return ", ".join(
        [
            *([f"{event.trials_left} trials left"] if event.trials_left is not None else []),
            *([f"{event.seconds_left:.0f} s left"] if event.seconds_left is not None else []),
        ]
    )
