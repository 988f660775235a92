"""Inner searches in a thread, while the main thread prepares the next one.

An inner search mostly waits for the solver's process. Before it there is a graph to build, and at times a
step to capture, which only the main thread does.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from shardc.passes.search.choose import Found, Unfit
from shardc.planning.auto.space import Choice

Find = Callable[[Choice, float], Found | Unfit]
"""Inner search: (choice, seconds per step that a result must beat) -> the best plan, or why there is none."""
Prepare = Callable[[Choice, float], None]
"""Part of an inner search that may be done beforehand; the same arguments."""


class Ahead:
    """Inner searches, one at a time.

    ``prepare`` does a part of ``find`` beforehand. Without it, nothing runs at the same time.
    """

    def __init__(self, find: Find, prepare: Prepare | None = None) -> None:
        self._find, self._prepare = find, prepare
        self._pool = ThreadPoolExecutor(1, "shardc search")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=error is None)

    def found(self, choice: Choice, cutoff_s: float, following: Callable[[], Choice | None]) -> Found | Unfit:
        """Return the result of ``find`` for a choice, and prepare the choice ``following`` meanwhile."""
        if self._prepare is None:
            return self._find(choice, cutoff_s)
        self._prepare(choice, cutoff_s)
        running = self._pool.submit(self._find, choice, cutoff_s)
        after = following()
        if after is not None and not running.done():
            self._prepare(after, cutoff_s)
        return running.result()
