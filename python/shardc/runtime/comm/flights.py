"""Detection of the collective in which a GPU is stuck, by an event behind each collective on the stream.

A wait for NCCL's work only makes the stream wait, while the process continues. A missing rank therefore shows
only as a stream that does not move. The first event that the device has not passed belongs to the collective
that it waits for.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from torch import cuda


@dataclass
class Flights:
    """Collectives of one rank that its stream has not passed, in order."""

    _left: deque[tuple[cuda.Event, str]] = field(default_factory=deque)
    _free: list[cuda.Event] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _since: tuple[cuda.Event, float] | None = None

    def passed(self, what: str) -> None:
        """Record that the current stream waits for the collective ``what``, except during a graph capture."""
        if cuda.is_current_stream_capturing():
            return
        with self._lock:
            event = self._free.pop() if self._free else cuda.Event()
            event.record()
            self._left.append((event, what))

    def stuck(self) -> tuple[str, float] | None:
        """Return the collective that the device waits for, and for how many seconds that was observed."""
        with self._lock:
            while self._left and self._left[0][0].query():
                self._free.append(self._left.popleft()[0])
            if not self._left:
                self._since = None
                return None
            event, what = self._left[0]
            if self._since is None or self._since[0] is not event:
                self._since = event, time.monotonic()
            return what, time.monotonic() - self._since[1]
