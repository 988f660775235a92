"""``Runner``: checks and times built points of a task in a separate process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shardc.backends.tuning.bench import Measure
from shardc.backends.tuning.decision import Pairs, Rule
from shardc.workers.process import Ended, Process, Refused, TookTooLong
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Built, Outcome

LIMIT_S = 60.0
"""Time limit of checking and timing a candidate, in seconds."""
REFERENCE_S = 600.0
"""Time limit of computing the reference results, in seconds."""


class Runner:
    """Runner of built points, for one task at a time, in a process that calls ``job`` (``module:function``).

    The process is restarted after a crash, a time-out, or wrong results, which may have damaged its memory.
    """

    def __init__(
        self, job: str, limit_s: float = LIMIT_S, environment: Mapping[str, str] | None = None
    ) -> None:
        self._limit_s, self._job, self._environment = limit_s, job, dict(environment or {})
        self._process: Process | None = None
        self._task: Task | None = None
        self._threads = 0

    def runs(self, target: str) -> bool:
        """Return True if kernels for a target run on this machine. Raises UnknownTarget."""
        return True

    def start(self, threads: int) -> Process:
        """Start the process, before there is something to run."""
        if self._process is None or self._threads != threads:
            self.close()
            environment = self._environment | {"OMP_NUM_THREADS": str(threads)}
            self._process, self._threads = Process(self._job, environment), threads
        self._process.start()
        return self._process

    def measure(
        self, task: Task, candidate: Built, incumbent: Path, rule: Rule
    ) -> Pairs | tuple[Outcome, str]:
        """Time candidate against incumbent. Raises Refused, Ended, TookTooLong without a reference."""
        process = self._begin(task)
        assert candidate.path is not None
        try:
            found = process.ask(Measure(candidate.path, incumbent, rule), self._limit_s)
        except (Refused, Ended) as error:
            return self._failed(Outcome.CRASHED, str(error))
        except TookTooLong:
            return self._failed(Outcome.TIMED_OUT, f"it took more than {self._limit_s:g} s")
        return self._failed(Outcome.WRONG, found) if isinstance(found, str) else found

    def close(self) -> None:
        if self._process is not None:
            self._process.end()
        self._process = self._task = None

    def _begin(self, task: Task) -> Process:
        """Return the process, after giving it the task."""
        process = self.start(task.threads)
        if self._task != task:
            self._task = None  # if the new task has no reference, the process has lost the old one, too
            process.ask(task, REFERENCE_S)
            self._task = task
        return process

    def _failed(self, outcome: Outcome, said: str) -> tuple[Outcome, str]:
        self.close()
        self.start(self._threads)
        return outcome, said
