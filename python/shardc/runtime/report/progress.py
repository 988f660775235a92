"""Progress of work that takes more than two seconds: its phase, and how much is done.

    with work("saving a checkpoint"):
        for number, tensor in enumerate(tensors):
            step("tensors", number, len(tensors))

On a terminal, one line of standard error is rewritten, and erased at the end. Otherwise the logger
``shardc.progress`` gets a line after 2 s and then every 10 s. Only rank 0 reports progress, and no rank if
``SHARDC_PROGRESS`` is 0. A thread does it, since a single phase may take long. Outside of :func:`work`,
:func:`step` costs one comparison.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, RLock, Thread
from typing import TextIO

from ..environment import PROGRESS, RANK

log = logging.getLogger("shardc.progress")

AFTER_S = 2.0
"""Seconds before the first report."""
EVERY_S = 10.0
"""Seconds between two lines of a log."""
REDRAW_S = 0.2
"""Seconds between two updates of a terminal's line."""
ERASE = "\r\x1b[K"


@dataclass
class Phase:
    """Part of the work, with its present step."""

    name: str
    step: str = ""


@dataclass
class Display:
    """Display of the progress of one piece of work.

    ``clock``: returns seconds. ``terminal``: stream for the line; None to log instead. :meth:`tick` reports
    what is due, and returns the seconds until the next report.
    """

    title: str
    terminal: TextIO | None
    clock: Callable[[], float] = time.monotonic
    phases: list[Phase] = field(default_factory=list)
    lock: RLock = field(default_factory=RLock)

    def __post_init__(self) -> None:
        self.started = self.clock()
        self.due = self.started + AFTER_S
        self.drawn = False
        self.phases.insert(0, Phase(self.title))

    def tick(self) -> float:
        """Report progress if due. Return the seconds until the next report."""
        now = self.clock()
        if now < self.due:
            return self.due - now
        with self.lock:
            if self.terminal is None:
                log.info("%s", self.text())
            else:
                width = shutil.get_terminal_size().columns - 1
                self._write(ERASE + self.text()[:width])
                self.drawn = True
        self.due = now + (EVERY_S if self.terminal is None else REDRAW_S)
        return self.due - now

    def text(self) -> str:
        """Return the progress as text, such as ``compile_step: kernels, 3 of 12 (4 s)``."""
        parts = [part for phase in [*self.phases] for part in (phase.name, phase.step) if part]
        return f"{': '.join(parts)} ({self.clock() - self.started:.0f} s)"

    def erase(self) -> None:
        """Erase the line from the terminal; the next tick draws it again."""
        with self.lock:
            if self.drawn:
                self._write(ERASE)
                self.drawn = False

    def _write(self, text: str) -> None:
        if self.terminal is not None:
            self.terminal.write(text)
            self.terminal.flush()


_shown: Display | None = None


@contextmanager
def work(title: str) -> Iterator[None]:
    """Context whose progress is shown. Within another ``work`` it is a phase of that."""
    global _shown
    if _shown is not None:
        with phase(title):
            yield
        return
    if not _is_wanted():
        yield
        return
    _shown = Display(title, sys.stderr if sys.stderr.isatty() else None)
    ended = Event()
    thread = Thread(target=_follow, args=(_shown, ended), name="shardc progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        shown, _shown = _shown, None
        ended.set()
        thread.join()
        shown.erase()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Context of a named phase; :func:`step` reports progress within it."""
    shown = _shown
    if shown is None:
        yield
        return
    shown.phases.append(Phase(name))
    depth = len(shown.phases)
    try:
        yield
    finally:
        del shown.phases[depth - 1 :]


def step(what: str, done: int | None = None, total: int | None = None) -> None:
    """Set the step of the innermost phase: ``dist-pad``, or with numbers ``kernels, 3 of 12``."""
    if _shown is not None:
        count = "" if done is None else f", {done}" + (f" of {total}" if total is not None else "")
        _shown.phases[-1].step = what + count


@contextmanager
def erased() -> Iterator[None]:
    """Context without the line on the terminal, to print something else."""
    shown = _shown
    if shown is None:
        yield
        return
    with shown.lock:
        shown.erase()
        yield


def _follow(shown: Display, ended: Event) -> None:
    wait_s = AFTER_S
    while not ended.wait(wait_s):
        wait_s = shown.tick()


def _after_fork() -> None:
    """Show nothing in a forked child, which lacks the thread that does."""
    global _shown
    _shown = None


os.register_at_fork(after_in_child=_after_fork)


def _is_wanted() -> bool:
    return RANK.get() == "0" and PROGRESS.get()
