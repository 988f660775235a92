"""Interface of clocks that time calls of candidates, and the host's clock."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import torch

from shardc.backends.benchmark.host import host_model

ALIVE = 2
"""Number of results that stay alive. So a result reuses older memory, as in a program that runs repeatedly,
and not the memory that was just read.
"""


class Clock(Protocol):
    """Times calls of one benchmark."""

    def seconds(self, call: Callable[[], object]) -> float:
        """Return the seconds of one call."""
        ...

    def surroundings(self) -> str:
        """Return text on the conditions for which measurements are valid."""
        ...


class HostClock:
    """Host clock: for one thread its own CPU time, which other load affects little; otherwise wall time."""

    def __init__(self) -> None:
        self._clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        self._results: deque[object] = deque(maxlen=ALIVE)

    def seconds(self, call: Callable[[], object]) -> float:
        start = self._clock()
        self._results.append(call())
        return self._clock() - start

    def surroundings(self) -> str:
        """Return the CPU, the number of threads, PyTorch's version and its matmul precision."""
        threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
        return f"{host_model()}, {threads} threads, torch {torch.__version__}, {precision}"
