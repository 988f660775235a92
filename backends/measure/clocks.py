"""What times one call of a candidate: the clock of the host's thread, or events on a GPU's stream."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import torch

from shardc.backends.cpu.target import host_model
from shardc.runtime.triton_kernels import driver_version

ALIVE = 2
"""Results that stay alive: a candidate's next one does not lie in what it has just read, but in memory that was used
before, as in a program that runs again and again."""
WIPED_BYTES = 256 << 20
"""Memory that is written before each call on a GPU: what a call reads is in no cache then, and the host, which starts
the call meanwhile, is ahead of the device (some 60 us), so that launches are no part of the time."""

cuda: Any = torch.cuda


class Clock(Protocol):
    """Times calls of one contest."""

    def seconds(self, call: Callable[[], object]) -> float:
        """What one call takes."""

    def surroundings(self) -> str:
        """What its measurements hold for."""


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


class DeviceClock:
    """Events before and after a call on the current stream of ``device``, which was idle before.

    Raises torch.OutOfMemoryError where there is no room for what is wiped.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._wiped: torch.Tensor | None = None

    def seconds(self, call: Callable[[], object]) -> float:
        if self._wiped is None:
            self._wiped = torch.empty(WIPED_BYTES, dtype=torch.uint8, device=self._device)
        first, last = (cuda.Event(enable_timing=True) for _ in range(2))
        self._wiped.zero_()
        first.record()
        result = call()
        last.record()
        last.synchronize()
        del result
        return first.elapsed_time(last) / 1e3

    def surroundings(self) -> str:
        """The GPU, its driver, PyTorch's version (of which cuBLAS is a part), Triton's, and the precision asked."""
        import triton

        name, precision = cuda.get_device_name(self._device), torch.get_float32_matmul_precision()
        library = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
        driver = driver_version() if torch.version.cuda else "unknown"
        versions = f"driver {driver}, torch {torch.__version__}, {library}, triton {triton.__version__}"
        return f"{name}, {versions}, {precision}"
