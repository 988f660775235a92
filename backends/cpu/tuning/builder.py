"""``CpuBuilder``: compiles points of CPU kernels to libraries of one kernel each."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from shardc.backends.tuning.point import Point
from shardc.workers.process import Ended, Process, Refused, TookTooLong
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Built
from shardc.cache.scratch import scratch

LIMIT_S = 60.0
"""Time limit of a compile, in seconds."""


class CpuBuilder:
    """Compiler of points in several ``processes`` (default: all cores but one).

    ``job``: the processes' function, ``module:function``. A point that crashes the compiler or takes longer
    than ``limit_s`` is not built; others are not affected. Libraries are in a folder that is removed with the
    builder.
    """

    def __init__(
        self,
        processes: int | None = None,
        limit_s: float = LIMIT_S,
        job: str = "shardc.backends.cpu.tuning.build_job:build",
    ) -> None:
        self._limit_s, processes = limit_s, processes or max(1, (os.cpu_count() or 2) - 1)
        self._folder = scratch()
        self._all = [Process(job, {"OMP_NUM_THREADS": "1"}) for _ in range(processes)]
        self._free: SimpleQueue[Process] = SimpleQueue()
        for process in self._all:
            self._free.put(process)
        self._threads = ThreadPoolExecutor(processes, "shardc-builder")

    def start(self) -> None:
        """Start the processes, before there is something to build."""
        for process in self._all:
            process.start()

    def build(self, task: Task, points: Sequence[Point | None]) -> Iterator[Built]:
        """Yield each point, in order, as soon as it is built, while later ones are being built."""
        jobs: list[Future[Built]] = [self._threads.submit(self._one, task, point) for point in points]
        try:
            for job in jobs:
                yield job.result()
        finally:
            for job in jobs:
                job.cancel()

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        for process in self._all:
            process.end()
        self._folder.cleanup()

    def _one(self, task: Task, point: Point | None) -> Built:
        started, library, problem = time.monotonic(), b"", None
        process = self._free.get()
        try:
            library = process.ask((task, point), self._limit_s)
        except Refused as error:
            problem = str(error)
        except Ended as error:
            problem = f"the compiler ended with {error}"
        except TookTooLong:
            problem = f"the compiler took more than {self._limit_s:g} s"
        finally:
            self._free.put(process)
        if problem is not None:
            return Built(point, seconds=time.monotonic() - started, said=problem)
        code = hashlib.sha256(library).hexdigest()[:32]
        path = Path(self._folder.name, f"{code}.so")
        if not path.exists():
            path.write_bytes(library)
        return Built(point, path, code, time.monotonic() - started)
