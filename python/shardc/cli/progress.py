"""What commands say on standard error while they work."""

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
def status(text: str) -> Iterator[None]:
    """Show ``text`` with a spinner on standard error while the block runs, if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@contextmanager
def progress(trials: int | None, seconds: float | None) -> Iterator[Callable[[Round], None]]:
    """The progress of tuning: a bar on a terminal; elsewhere, in a log, a line now and then."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    texts = TextColumn("{task.description}"), TextColumn("{task.fields[left]}")
    columns = (texts[0], BarColumn(), TimeElapsedColumn(), texts[1])
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        bar = shown.add_task("tuning", total=trials or seconds, left="")

        def on_round(event: Round) -> None:
            spent_s = None if seconds is None else seconds - (event.seconds_left or 0.0)
            done = event.trials_done if trials else spent_s
            shown.update(bar, completed=done, description=_said(event), left=_left(event))

        yield on_round


def _lines() -> Callable[[Round], None]:
    said_s = time.monotonic()

    def on_round(event: Round) -> None:
        nonlocal said_s
        if time.monotonic() - said_s >= EVERY_S:
            said_s = time.monotonic()
            print(", ".join(filter(None, [_said(event), _left(event)])), file=sys.stderr, flush=True)

    return on_round


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
