"""``Forked``: a function that runs in a forked child, which has a copy of all that this process has read."""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, NoReturn, TypeVar

from shardc.workers.process import POLL_S, Ended

_T = TypeVar("_T")
IDLE_S = 20.0
"""Seconds without CPU time after which a child is taken to hang, as on a lock of a thread that it lacks."""


def can_fork() -> bool:
    """Return whether forked children run here: on Linux."""
    return sys.platform == "linux"


class Forked(Generic[_T]):
    """Call of a function in a forked child, which begins at once.

    The child has one thread, ignores Ctrl-C, and changes nothing in this process. A crash or a hang ends it
    alone. PyTorch's operations use one thread in it, because its pools lack theirs.

    Args:
        function: Function without arguments, whose result can be pickled.
    """

    def __init__(self, function: Callable[[], _T]) -> None:
        self._out, into = os.pipe()
        self._content = bytearray()
        sys.stdout.flush()
        sys.stderr.flush()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._out)
            _answer(function, into)
        os.close(into)
        self._is_open = True

    @property
    def is_busy(self) -> bool:
        """Whether it has not ended yet."""
        while self._is_open and select.select([self._out], [], [], 0)[0]:
            self._read()
        return self._is_open

    def result(self, is_over: Callable[[], bool]) -> _T:
        """Wait for the result, and return it.

        ``is_over``: tells every ``POLL_S`` seconds whether to stop waiting. Raises Ended if there is no
        result: the function raised something, the child crashed or hung, or the caller stopped to wait.
        """
        used, since = -1, time.monotonic()
        while self._is_open:
            if select.select([self._out], [], [], POLL_S)[0]:
                self._read()
                continue
            if is_over():
                self.end()
                raise Ended("nobody waits for it")
            now = _cpu_ticks(self._child)
            if now != used:
                used, since = now, time.monotonic()
            elif time.monotonic() - since > IDLE_S:
                self.end()
                raise Ended(f"no CPU time for {IDLE_S:g} s")
        if not self._content:
            raise Ended("no answer")
        return pickle.loads(bytes(self._content))

    def end(self) -> None:
        """Kill the child if it runs."""
        if self._is_open:
            os.kill(self._child, signal.SIGKILL)
            self._close()

    def _read(self) -> None:
        part = os.read(self._out, 1 << 19)
        self._content += part
        if not part:
            self._close()

    def _close(self) -> None:
        self._is_open = False
        os.close(self._out)
        with suppress(ChildProcessError):  # somebody waited for all children
            os.waitpid(self._child, 0)


def _answer(function: Callable[[], object], into: int) -> NoReturn:
    """Write the pickled result of a function to a pipe, nothing if it raises, and end this process."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        content = pickle.dumps(function())
        with os.fdopen(into, "wb") as out:
            out.write(content)
    finally:
        os._exit(0)


def _cpu_ticks(process: int) -> int:
    """Return the CPU time of a process, in clock ticks."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
