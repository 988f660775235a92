"""``Process``: a worker process whose crash or hang does not harm the caller."""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from shardc.environment import child_environment

WORKER = Path(__file__).with_name("worker.py")
START_S = 120
"""Seconds that a process may take for its imports."""
POLL_S = 0.1


class Ended(Exception):
    """Raised if the process ended before it answered. The text has its signal or exit code."""


class TookTooLong(Exception):
    """Raised if there is no answer within the limit, or before the caller stopped to wait. The process was
    ended."""


class Refused(Exception):
    """Raised with the type and text of an exception that the function raised in the process."""


class Process:
    """Python process that calls one function, ``role`` (``module:function``), with each message it gets.

    It starts when first needed, and again after it ended. It ends when its pipe is closed, by its own alarm
    if it hangs, or by :meth:`end`.
    """

    def __init__(self, role: str, environment: Mapping[str, str | None] | None = None) -> None:
        self._role, self._environment = role, environment or {}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it if it does not run, without waiting."""
        if self._process is not None and self._process.poll() is None:
            return
        self.end()
        self._said = tempfile.TemporaryFile(prefix="shardc-")  # noqa: SIM115 -- end() closes it
        # The worker imports nothing from the user's site or folder, and ignores the user's interrupts.
        command = [sys.executable, "-I", "-S", str(WORKER), self._role, *filter(None, sys.path)]
        pipe, environment = subprocess.PIPE, child_environment(**self._environment)
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._said, env=environment, start_new_session=True
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._asked, self._answers, self._fresh = self._process.stdin, self._process.stdout, True

    def ask(self, message: object, limit_s: float, is_over: Callable[[], bool] | None = None) -> Any:
        """Return the function's result for ``message``. Raises Ended, TookTooLong, Refused.

        ``is_over``: tells every ``POLL_S`` seconds whether to stop waiting.
        """
        self.start()
        content = pickle.dumps((message, limit_s))
        try:
            if self._fresh:  # it reports when its imports are done
                self._answer(START_S, is_over)
                self._fresh = False
            with suppress(BrokenPipeError):
                self._asked.write(struct.pack("<Q", len(content)) + content)
                self._asked.flush()
            ok, answer = self._answer(limit_s, is_over)
        except BaseException:  # after an interrupt, too, nobody waits for its answer
            self.end()
            raise
        if not ok:
            raise Refused(answer)
        return answer

    def kill(self) -> None:
        """Kill it while another thread may wait for its answer, which gets Ended."""
        process = self._process
        if process is not None:
            process.kill()

    def end(self) -> None:
        """Kill it, and wait for its end. No thread may wait for its answer."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._answers.close()
        with suppress(BrokenPipeError):
            self._asked.close()
        self._said.close()
        self._process = None

    def _answer(self, limit_s: float, is_over: Callable[[], bool] | None) -> tuple[bool, object]:
        deadline = time.monotonic() + limit_s
        (size,) = struct.unpack("<Q", self._read(8, deadline, is_over))
        return pickle.loads(self._read(size, deadline, is_over))

    def _read(self, size: int, deadline: float, is_over: Callable[[], bool] | None) -> bytes:
        content, out = b"", self._answers.fileno()
        while len(content) < size:
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([out], [], [], min(left_s, POLL_S) if is_over else left_s)[0]:
                if is_over and left_s and not is_over():
                    continue
                raise TookTooLong
            part = os.read(out, size - len(content))
            if not part:
                raise Ended(self._end_in_words())
            content += part
        return content

    def _end_in_words(self) -> str:
        assert self._process is not None
        code = self._process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        self._said.seek(0)
        last = self._said.read()[-2000:].decode(errors="replace").strip().splitlines()
        return f"{how}: {last[-1][:200]}" if last else how
