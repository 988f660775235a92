"""``Process``: a worker that may crash or hang without harm to whoever asks it."""

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
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from shardc.environment import child_environment

WORKER = Path(__file__).with_name("worker.py")
START_S = 120
"""A process that takes longer to import what it needs is given up."""


class Ended(Exception):
    """The process ended while it was asked: by a signal, or an exit code."""


class TookTooLong(Exception):
    """No answer within the limit; the process was ended."""


class Refused(Exception):
    """What was asked raised an exception there, whose type and text this has."""


class Process:
    """A Python process that calls one function, ``role`` (``module:function``), with whatever it is sent.

    It starts when it is first needed, and again after it ended. It ends when its pipe is closed, by an alarm
    of its own where it hangs, or by :meth:`end`.
    """

    def __init__(self, role: str, environment: Mapping[str, str | None] | None = None) -> None:
        self._role, self._environment = role, environment or {}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it if it does not run; does not wait for it."""
        if self._process is not None and self._process.poll() is None:
            return
        self.end()
        self._said = tempfile.TemporaryFile(prefix="shardc-")  # noqa: SIM115 -- end() closes it
        # Nothing of the user's site or folder is imported, and an interrupt is for the user's process.
        command = [sys.executable, "-I", "-S", str(WORKER), self._role, *filter(None, sys.path)]
        pipe, environment = subprocess.PIPE, child_environment(**self._environment)
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._said, env=environment, start_new_session=True
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._asked, self._answers, self._fresh = self._process.stdin, self._process.stdout, True

    def ask(self, message: object, limit_s: float) -> Any:
        """What the function gives for ``message``. Raises Ended, TookTooLong, Refused."""
        self.start()
        content = pickle.dumps((message, limit_s))
        try:
            if self._fresh:  # it says when it has imported what it needs
                self._answer(START_S)
                self._fresh = False
            with suppress(BrokenPipeError):
                self._asked.write(struct.pack("<Q", len(content)) + content)
                self._asked.flush()
            ok, answer = self._answer(limit_s)
        except BaseException:  # an interrupt, too: nobody waits any more for what it is at
            self.end()
            raise
        if not ok:
            raise Refused(answer)
        return answer

    def end(self) -> None:
        """Ends it, whatever it is at."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._answers.close()
        with suppress(BrokenPipeError):
            self._asked.close()
        self._said.close()
        self._process = None

    def _answer(self, limit_s: float) -> tuple[bool, object]:
        deadline = time.monotonic() + limit_s
        (size,) = struct.unpack("<Q", self._read(8, deadline))
        return pickle.loads(self._read(size, deadline))

    def _read(self, size: int, deadline: float) -> bytes:
        content, out = b"", self._answers.fileno()
        while len(content) < size:
            if not select.select([out], [], [], max(0.0, deadline - time.monotonic()))[0]:
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
