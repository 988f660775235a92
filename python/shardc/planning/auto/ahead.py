"""Inner searches in threads, while the main thread prepares the next one.

An inner search mostly waits for the solver's process. Before it there is a graph to build, and at times a
step to capture, which only the main thread does. Once the next search is prepared, it begins, too, if the
machine has a core for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from types import TracebackType
from typing import Self

from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.solver import ask
from shardc.planning.auto.space import Choice

Find = Callable[[Choice, float], Found | Unfit]
"""Inner search: (choice, seconds per step that a result must beat) -> the best plan, or why there is none."""
Prepare = Callable[[Choice, float], None]
"""Part of an inner search that may be done beforehand; the same arguments."""


Following = Callable[[], tuple[Choice, float | None] | None]
"""Guess of the next inner search, with the seconds that a result must beat; None if those are not known."""


@dataclass(frozen=True)
class _Running:
    """Inner search in a thread, for a result that takes less than ``cutoff_s``."""

    future: Future[Found | Unfit]
    cutoff_s: float

    @property
    def is_busy(self) -> bool:
        return not self.future.done()


class Ahead:
    """Inner searches, of which at most :data:`~shardc.passes.search.solver.ask.MOST` run at the same time.

    ``prepare`` does a part of ``find`` beforehand. Without it, nothing runs at the same time.
    """

    def __init__(self, find: Find, prepare: Prepare | None = None) -> None:
        self._find, self._prepare = find, prepare
        self._pool = ThreadPoolExecutor(ask.MOST, "shardc search")
        self._begun: dict[Choice, _Running] = {}
        """Searches that began before they were asked for."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if any(search.is_busy for search in self._begun.values()):
            ask.abandon()
        self._pool.shutdown(wait=error is None)

    def found(self, choice: Choice, cutoff_s: float, following: Following) -> Found | Unfit:
        """Return the result of ``find`` for a choice, and begin with the choice ``following`` meanwhile."""
        if self._prepare is None:
            return self._find(choice, cutoff_s)
        running = self._begun.pop(choice, None)
        if running is None:
            self._prepare(choice, cutoff_s)
            running = self._submit(choice, cutoff_s)
        self._begin(running, following(), self._prepare)
        found = running.future.result()
        if running.cutoff_s < cutoff_s and isinstance(found, Unfit) and found.bound_s < cutoff_s:
            return self._find(choice, cutoff_s)
        return found

    def _submit(self, choice: Choice, cutoff_s: float) -> _Running:
        return _Running(self._pool.submit(self._find, choice, cutoff_s), cutoff_s)

    def _begin(self, running: _Running, after: tuple[Choice, float | None] | None, prepare: Prepare) -> None:
        """Prepare the next search, and begin it, unless the one ``running`` ends before."""
        if after is None or after[0] in self._begun or not running.is_busy:
            return
        choice, cutoff_s = after
        prepare(choice, inf if cutoff_s is None else cutoff_s)
        busy = 1 + sum(search.is_busy for search in self._begun.values())
        if cutoff_s is not None and busy < ask.MOST and running.is_busy:
            self._begun[choice] = self._submit(choice, cutoff_s)
