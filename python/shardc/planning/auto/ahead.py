"""Inner searches that begin before they are asked for, in forked children."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.clock import Clock
from shardc.passes.search.solver import ask
from shardc.planning.auto.space import Choice
from shardc.runtime.report.logs import TIMING
from shardc.workers.forked import Forked
from shardc.workers.process import Ended

Find = Callable[[Choice, float], Found | Unfit]
"""Inner search: (choice, seconds per step that a result must beat) -> the best plan, or why there is none."""


class Begun(Protocol):
    """Inner search that has begun."""

    @property
    def is_busy(self) -> bool:
        """Whether it has not ended yet."""
        ...

    def result(self) -> Found | Unfit:
        """Wait for the result, and return it."""
        ...

    def end(self) -> None:
        """End it; nobody will ask for its result."""
        ...


@dataclass(frozen=True)
class Done:
    """Inner search with a known result."""

    answer: Found | Unfit
    is_busy: bool = False

    def result(self) -> Found | Unfit:
        return self.answer

    def end(self) -> None:
        pass


class InChild:
    """Inner search in a forked child, which shares all that this process has read.

    Args:
        find: The search.
        keep: Called with its answer in this process, unless the clock ended the search.
        clock: Whose Ctrl-C ends the child. Then, or if the child fails, ``find`` runs in this process.
    """

    def __init__(
        self, find: Callable[[], Found | Unfit], keep: Callable[[Found | Unfit], None], clock: Clock
    ) -> None:
        self._find, self._keep, self._clock = find, keep, clock
        self._child = Forked(find)

    @property
    def is_busy(self) -> bool:
        return self._child.is_busy

    def result(self) -> Found | Unfit:
        try:
            answer = self._child.result(lambda: self._clock.is_interrupted)
        except Ended as error:
            TIMING.debug("search: a child did not answer: %s", error)
            answer = self._find()
        if not self._clock.is_over:
            self._keep(answer)
        return answer

    def end(self) -> None:
        self._child.end()


Begin = Callable[[Choice, float], Begun]
"""Begin of an inner search; the same arguments."""
Following = Callable[[Collection[Choice]], tuple[Choice, float | None] | None]
"""Guess of the next inner search besides some that have begun, with the seconds that a result must beat; None
if those are not known."""


@dataclass(frozen=True)
class _Running:
    """Inner search that has begun, for a result that takes less than ``cutoff_s``."""

    search: Begun
    cutoff_s: float


class Ahead:
    """Inner searches, of which at most :data:`~shardc.passes.search.solver.ask.MOST` run at the same time.

    Without ``begin``, nothing runs at the same time.
    """

    def __init__(self, find: Find, begin: Begin | None) -> None:
        self._find, self._begin = find, begin
        self._begun: dict[Choice, _Running] = {}
        """Searches that began before they were asked for."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for running in self._begun.values():
            running.search.end()

    def found(self, choice: Choice, cutoff_s: float, following: Following) -> Found | Unfit:
        """Return the result of ``find`` for a choice, and begin with the choice ``following`` meanwhile."""
        begin = self._begin
        if begin is None:
            return self._find(choice, cutoff_s)
        running = self._begun.pop(choice, None) or _Running(begin(choice, cutoff_s), cutoff_s)
        try:
            self._begin_next(running, partial(following, (choice, *self._begun)), begin)
            found = running.search.result()
        except BaseException:
            running.search.end()
            raise
        if running.cutoff_s < cutoff_s and isinstance(found, Unfit) and found.bound_s < cutoff_s:
            return self._find(choice, cutoff_s)
        return found

    def end(self, is_worth: Callable[[Choice], bool]) -> None:
        """End searches that began and are not worth their time any more."""
        for choice in [choice for choice in self._begun if not is_worth(choice)]:
            self._begun.pop(choice).search.end()

    def _begin_next(
        self, running: _Running, following: Callable[[], tuple[Choice, float | None] | None], begin: Begin
    ) -> None:
        """Begin the next search, if there is a core for it, and if the one ``running`` has not ended."""
        others = [search for search in self._begun.values() if search.search.is_busy]
        if len(others) + 1 >= ask.MOST or not running.search.is_busy or (after := following()) is None:
            return
        choice, cutoff_s = after
        if cutoff_s is not None:
            self._begun[choice] = _Running(begin(choice, cutoff_s), cutoff_s)
