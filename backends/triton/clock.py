"""Clock for calls on a GPU: events on its stream."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import cuda

from shardc.cost.machine import GPUS
from shardc.runtime.kernels.triton_kernels import driver_version

WIPED_BYTES = max(gpu.l2_bytes for gpu in GPUS.values())
"""Bytes written before each timed call. So caches are cold, and the host is about 60 us ahead of the device,
so that launches are not part of the time.
"""


class DeviceClock:
    """Clock for calls on the current stream of ``device``, with events. Raises torch.OutOfMemoryError."""

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
        """Return the GPU, its driver, the libraries' versions, and the matmul precision."""
        import triton

        name, precision = cuda.get_device_name(self._device), torch.get_float32_matmul_precision()
        library = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
        driver = driver_version() if torch.version.cuda else "unknown"
        versions = f"driver {driver}, torch {torch.__version__}, {library}, triton {triton.__version__}"
        return f"{name}, {versions}, {precision}"
