"""Functions that run in forked children, which have a copy of all that this process has read.

``Forked``: one call. ``ForkedServer``: one call for each request that the child gets. ``concurrently``: calls
of several functions, one of them in this process.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import BinaryIO, Generic, NoReturn, TypeVar

from shardc.workers.process import POLL_S, Ended

_T = TypeVar("_T")
_Request = TypeVar("_Request")
IDLE_S = 20.0
"""Seconds without CPU time after which a child is taken to hang, as on a lock of a thread that it lacks.

The CPU time of processes that the child started counts too.
"""


def can_fork() -> bool:
    """Return whether forked children run here: on Linux."""
    return sys.platform == "linux"


class _Child:
    """Forked child that answers into a pipe. ``run`` is called in it with the pipe, and then it ends.

    ``threads``: as for :class:`Forked`.
    """

    def __init__(self, run: Callable[[BinaryIO], object], threads: int | None = None) -> None:
        self._out, into = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._out)
            _run(run, into, threads)
        os.close(into)
        self._is_open = True

    def end(self) -> None:
        """Kill the child if it runs."""
        if self._is_open:
            os.kill(self._child, signal.SIGKILL)
            self._close()

    @property
    def _has_answer(self) -> bool:
        """Whether the pipe has something, or was closed."""
        return bool(select.select([self._out], [], [], 0)[0])

    def _wait(self, is_over: Callable[[], bool]) -> None:
        """Wait until the pipe has something, or was closed. Raises Ended."""
        used, since = -1, time.monotonic()
        while not select.select([self._out], [], [], POLL_S)[0]:
            if is_over():
                self.end()
                raise Ended("nobody waits for it")
            now = _cpu_ticks(self._child)
            if now != used:
                used, since = now, time.monotonic()
            elif time.monotonic() - since > IDLE_S:
                self.end()
                raise Ended(f"no CPU time for {IDLE_S:g} s")

    def _read(self) -> bytes:
        """Return what the pipe has. An empty answer is its end, and that of the child."""
        part = os.read(self._out, 1 << 19)
        if not part:
            self._close()
        return part

    def _close(self) -> None:
        self._is_open = False
        os.close(self._out)
        with suppress(ChildProcessError):  # somebody waited for all children
            os.waitpid(self._child, 0)


class Forked(_Child, Generic[_T]):
    """Call of a function in a forked child, which begins at once.

    The child begins with one thread, ignores Ctrl-C, and changes nothing in this process. A crash or a hang
    ends it alone.

    Args:
        function: Function without arguments, whose result can be pickled.
        threads: Number of threads for PyTorch's operations in the child. A copy of a pool lacks its threads,
            so with None the function runs in the thread that forked, and operations use one thread. With a
            number it runs in a new thread, which makes its own pool; modes of the forking thread do not hold
            there, such as autocast.
    """

    def __init__(self, function: Callable[[], _T], threads: int | None = None) -> None:
        self._content = bytearray()
        super().__init__(lambda out: out.write(pickle.dumps(function())), threads)

    @property
    def is_busy(self) -> bool:
        """Whether it has not ended yet."""
        while self._is_open and self._has_answer:
            self._content += self._read()
        return self._is_open

    def result(self, is_over: Callable[[], bool]) -> _T:
        """Wait for the result, and return it.

        ``is_over``: tells every ``POLL_S`` seconds whether to stop waiting. Raises Ended if there is no
        result: the function raised something, the child crashed or hung, or the caller stopped to wait.
        """
        while self._is_open:
            self._wait(is_over)
            self._content += self._read()
        if not self._content:
            raise Ended("no answer")
        return pickle.loads(bytes(self._content))


class ForkedServer(_Child, Generic[_Request, _T]):
    """Function that a forked child calls with each request that it gets, one at a time.

    The child is like that of :class:`Forked`. It lives until :meth:`end`, or until this process ends.

    Args:
        function: Called with each request. Requests and results can be pickled.
        begin: Called in the child before the first request, whose result and errors are dropped.
    """

    def __init__(self, function: Callable[[_Request], _T], begin: Callable[[], object]) -> None:
        asked, self._asks = os.pipe()
        # A request lies in a file without a name: a pipe would block until the child reads it.
        self._request = os.memfd_create("shardc-request")

        def serve(out: BinaryIO) -> None:
            os.close(self._asks)
            with suppress(Exception):  # the request for it will raise it again
                begin()
            while size := os.read(asked, 8):
                request = pickle.loads(os.pread(self._request, *struct.unpack("<Q", size), 0))
                try:
                    answer = True, function(request)
                except Exception as error:
                    answer = False, f"{type(error).__name__}: {error}"
                content = pickle.dumps(answer)
                out.write(struct.pack("<Q", len(content)) + content)
                out.flush()

        super().__init__(serve)
        os.close(asked)
        self.is_asked = False

    @property
    def is_alive(self) -> bool:
        """Whether it may be asked."""
        return self._is_open

    @property
    def is_busy(self) -> bool:
        """Whether it was asked, and has not begun to answer."""
        return self.is_asked and not self._has_answer

    def ask(self, request: _Request) -> None:
        """Send a request, the answer of which :meth:`result` returns. It must not have another one.

        Raises Ended if the request cannot be pickled; others may follow.
        """
        assert self._is_open and not self.is_asked
        try:
            content = pickle.dumps(request)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise Ended(f"not asked: {error}") from error
        os.pwrite(self._request, content, 0)
        os.write(self._asks, struct.pack("<Q", len(content)))
        self.is_asked = True

    def result(self, is_over: Callable[[], bool]) -> _T:
        """Wait for the answer to the request, and return it.

        ``is_over``: as in :meth:`Forked.result`. Raises Ended if there is none; if only the function raised
        something, other requests may follow.
        """
        content = bytearray()
        while len(content) < 8 or len(content) < 8 + struct.unpack("<Q", content[:8])[0]:
            self._wait(is_over)
            if not (part := self._read()):
                raise Ended("no answer")
            content += part
        self.is_asked = False
        is_done, answer = pickle.loads(bytes(content[8:]))
        if not is_done:
            raise Ended(answer)
        return answer

    def _close(self) -> None:
        self.is_asked = False
        os.close(self._asks)
        os.close(self._request)
        super()._close()


def concurrently(functions: Sequence[Callable[[], _T]]) -> list[_T]:
    """Return the results of functions, all but the first of which run in forked children.

    Where children cannot help (one core, no ``fork``), or have no result, functions run in this process.
    Raises what a function raises here.
    """
    if not can_fork() or (os.cpu_count() or 1) < 2:
        return [function() for function in functions]
    children = [Forked(function) for function in functions[1:]]
    results = []
    try:
        results += [functions[0]()]
        for child, function in zip(children, functions[1:], strict=True):
            try:
                results.append(child.result(lambda: False))
            except Ended:
                results.append(function())
    finally:
        for child in children:
            child.end()
    return results


def _run(run: Callable[[BinaryIO], object], into: int, threads: int | None) -> NoReturn:
    """Call a function with a pipe to write to, and end this process."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(threads or 1)
        if threads is None:
            _write(run, into)
        else:
            leader = threading.Thread(target=copy_context().run, args=(_write, run, into))
            leader.start()
            leader.join()
    finally:
        os._exit(0)


def _write(run: Callable[[BinaryIO], object], into: int) -> None:
    with suppress(Exception), os.fdopen(into, "wb") as out:  # without an answer the caller knows
        run(out)


def _cpu_ticks(process: int) -> int:
    """Return the CPU time of a process and of those that it started, in clock ticks; 0 if it is gone."""
    folder = Path(f"/proc/{process}")
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        lists = [path.read_text() for path in folder.glob("task/*/children")]
    except OSError:
        return 0
    return sum(map(int, fields[11:15])) + sum(_cpu_ticks(int(child)) for child in " ".join(lists).split())
