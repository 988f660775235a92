"""Runs many commands in forked processes: one that crashes or hangs ends its process, and is known by it."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

from shardc.cli import main

LIMIT_S = 30
"""Seconds of one command, after which its process ends."""


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit code, or minus the signal that ended its process, and its errors."""

    code: int
    err: str

    @property
    def problem(self) -> str:
        """What is wrong with it, empty for a success and for an error in words."""
        if self.code < 0:
            return f"ended by {signal.Signals(-self.code).name}"
        is_raw = self.code not in (0, 1, 2) or "Traceback" in self.err or "internal error" in self.err
        return f"exit code {self.code}: {self.err.strip()[-600:]}" if is_raw else ""


def outcomes(commands: Sequence[Sequence[str]]) -> list[Outcome]:
    """The outcome of each command line, in order, each run as ``shardc`` runs it."""
    found: list[Outcome] = []
    while len(found) < len(commands):
        found += _until_a_crash(commands[len(found) :])
    return found


def _until_a_crash(commands: Sequence[Sequence[str]]) -> Iterator[Outcome]:
    """The outcomes of one process's commands: of all, or of those until one ended it."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        _work(commands, into)
    os.close(into)
    count = 0
    with os.fdopen(out) as lines:
        for line in lines:
            count += 1
            yield Outcome(*json.loads(line))
    _, status = os.waitpid(child, 0)
    if count < len(commands):
        yield Outcome(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), "")


def _work(commands: Sequence[Sequence[str]], into: int) -> None:
    """Run the commands, a line into the pipe for each. Never returns."""
    for command in commands:
        signal.alarm(LIMIT_S)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as err:
            code = main(command)
        os.write(into, (json.dumps([code, err.getvalue()]) + "\n").encode())
    os._exit(0)
