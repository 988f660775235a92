"""Time limit of a search, and its interruption by Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from threading import current_thread, main_thread
from time import perf_counter
from types import FrameType

INTERRUPTED = "interrupted"


class Clock:
    """Time limit of a search from :meth:`start` on, and whether its user interrupted it.

    Loops of the search poll :attr:`is_over` and end with their best result. So no exception is raised in the
    middle of a solve.

    Args:
        limit_s: Seconds. Default: no limit.
        hears: Whether :meth:`running` handles Ctrl-C. Default: no, so Ctrl-C ends the process as usual.
        now: Function that returns the time in seconds.
    """

    def __init__(
        self, limit_s: float = inf, *, hears: bool = False, now: Callable[[], float] = perf_counter
    ) -> None:
        self.limit_s, self._hears, self._now = limit_s, hears, now
        self._is_interrupted = False
        self._outer: Clock | None = None
        self.start()

    def start(self) -> None:
        """Restart the time limit. An interrupt is kept."""
        self._start_s = self._now()

    def interrupt(self) -> None:
        """Let the search end with its best result."""
        self._is_interrupted = True

    @property
    def is_interrupted(self) -> bool:
        return self._is_interrupted

    @property
    def is_over(self) -> bool:
        """Return whether the search must end with its best result."""
        return self._is_interrupted or self._now() - self._start_s >= self.limit_s

    @property
    def left_s(self) -> float:
        """Return the seconds until the time limit."""
        return max(0.0, self.limit_s - (self._now() - self._start_s))

    @property
    def why(self) -> str:
        """Return the reason why the search must end."""
        is_interrupted = self._is_interrupted or self._is_outer_interrupted
        return INTERRUPTED if is_interrupted else f"time limit of {self.limit_s:g} s"

    @property
    def is_enough(self) -> bool:
        """Return whether the first good plan is enough.

        That is so if this search must end, or if its user interrupted the search that it is part of, which
        still needs a plan.
        """
        return self.is_over or self._is_outer_interrupted

    @property
    def _is_outer_interrupted(self) -> bool:
        return self._outer is not None and self._outer.is_interrupted

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the time limit. The first Ctrl-C inside the block ends the search; a second acts as usual.

        Only the main thread receives Ctrl-C. A search that is part of another one leaves Ctrl-C to that one.
        """
        self.start()
        before = signal.getsignal(signal.SIGINT)
        can_hear = self._hears and current_thread() is main_thread()
        if not can_hear or _listening or before is None or before == signal.SIG_IGN:
            self._outer = _listening[0] if can_hear and _listening else None
            yield
            return

        def interrupted(number: int, frame: FrameType | None) -> None:
            self.interrupt()
            signal.signal(signal.SIGINT, before)

        signal.signal(signal.SIGINT, interrupted)
        _listening.append(self)
        try:
            yield
        finally:
            _listening.pop()
            signal.signal(signal.SIGINT, before)


_listening: list[Clock] = []
"""Clock that handles Ctrl-C, if any."""
