"""What times a call on a GPU: events on its stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from shardc.cost.machine import GPUS
from shardc.runtime.kernels.triton_kernels import driver_version

WIPED_BYTES = max(gpu.l2_bytes for gpu in GPUS.values())
"""Memory that is written before each call on a GPU: what a call reads is in no cache then, and the host,
which starts the call meanwhile, is ahead of the device (some 60 us), so that launches are no part of the
time.
"""


cuda: Any = torch.cuda


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
        """The GPU, its driver, PyTorch's version (of which cuBLAS is a part), Triton's, and the precision
        asked.
        """
        import triton

        name, precision = cuda.get_device_name(self._device), torch.get_float32_matmul_precision()
        library = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
        driver = driver_version() if torch.version.cuda else "unknown"
        versions = f"driver {driver}, torch {torch.__version__}, {library}, triton {triton.__version__}"
        return f"{name}, {versions}, {precision}"
