"""What times one call of a candidate, and the clock of the host's thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import torch

from shardc.backends.benchmark.host import host_model

ALIVE = 2
"""Results that stay alive: a candidate's next one does not lie in what it has just read, but in memory that
was used before, as in a program that runs again and again.
"""


class Clock(Protocol):
    """Times calls of one benchmark."""

    def seconds(self, call: Callable[[], object]) -> float:
        """What one call takes."""
        ...

    def surroundings(self) -> str:
        """What its measurements hold for."""
        ...


class HostClock:
    """One thread is timed by its own clock, on which other load counts little; several by the wall's."""

    def __init__(self) -> None:
        self._clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        self._results: deque[object] = deque(maxlen=ALIVE)

    def seconds(self, call: Callable[[], object]) -> float:
        start = self._clock()
        self._results.append(call())
        return self._clock() - start

    def surroundings(self) -> str:
        """The CPU, the number of threads, PyTorch's version and the precision asked of it."""
        threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
        return f"{host_model()}, {threads} threads, torch {torch.__version__}, {precision}"
