"""What the process of the CPU runner does: checks and times libraries of one task."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

import torch

from shardc.backends.tuning.bench import SETS, Bench, Job, Kernel
from shardc.backends.tuning.task import NAME, Task
from shardc.runtime.kernels.library import Library

READ_BYTES = 1 << 18
"""Results of so many bytes are read once where a call's time is taken, as by the kernel that follows: else
what writes past the caches would seem to cost nothing.
"""
SAMPLE_S = 2e-4
"""Calls of short kernels are timed together, for about so long."""


class CpuBench(Bench):
    """Libraries, by the clock of the thread; by the wall's where there are several."""

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
        """With the reading of its results."""
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
    """At the rate of memory, whatever its dtype."""
    result.reshape(-1).view(torch.uint8)[: result.nbytes // 8 * 8].view(torch.int64).sum()
