"""Job of the CPU runner's process: checks and times libraries of one task."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

import torch

from shardc.backends.tuning.bench import SETS, Bench, Job, Kernel
from shardc.backends.tuning.task import NAME, Task
from shardc.runtime.kernels.library import Library

READ_BYTES = 1 << 18
"""Size in bytes from which on results are read once within the timed call, like a following kernel would.

Otherwise non-temporal stores would seem to cost nothing.
"""
SAMPLE_S = 2e-4
"""Approximate seconds for which calls of short kernels are timed together."""


class CpuBench(Bench):
    """Bench of libraries, timed by the thread's CPU time, or by wall time for several threads."""

    def __init__(self, task: Task) -> None:
        torch.set_num_threads(task.threads)
        super().__init__(task)
        self._alive: deque[object] = deque(maxlen=SETS)
        self._clock = time.thread_time if task.threads == 1 else time.perf_counter

    def load(self, path: Path) -> Kernel:
        return Library(path).kernel(NAME, self.outputs, self.size)

    def calls(self, incumbent: Kernel) -> int:
        return max(1, round(SAMPLE_S / max(self.seconds(incumbent, 1, 0), 1e-7)))

    def seconds(self, kernel: Kernel, calls: int, number: int) -> float:
        """Return the seconds of a call, including the reading of its results."""
        alive, sets = self._alive.append, [self.sets[(number + n) % SETS] for n in range(SETS)]
        start = self._clock()
        for call in range(calls):
            results = kernel(*sets[call % SETS])
            for result in results:
                if result.nbytes >= READ_BYTES:
                    _read(result)
            alive(results)
        return (self._clock() - start) / calls


run = Job(CpuBench)


def _read(result: torch.Tensor) -> None:
    """Read a result at the speed of memory, whatever its dtype."""
    result.reshape(-1).view(torch.uint8)[: result.nbytes // 8 * 8].view(torch.int64).sum()
