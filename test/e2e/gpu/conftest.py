"""Simulation of an absent GPU: PyTorch's answers about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from shardc.backends.triton.target import device_gpu
from shardc.runtime.kernels import triton_kernels

H200 = {
    "major": 9,
    "minor": 0,
    "multi_processor_count": 132,
    "shared_memory_per_block_optin": 232448,
    "max_threads_per_multi_processor": 2048,
    "L2_cache_size": 60 << 20,
    "gcnArchName": "",
}


class Properties:
    """What torch says of a device."""

    def __init__(self, **found: Any) -> None:
        vars(self).update({**H200, **found})


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A driver that knows of an H200, and caches of the test's own."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties())
    monkeypatch.setattr(triton_kernels, "driver_version", lambda: 13000)
    device_gpu.cache_clear()
    yield
    device_gpu.cache_clear()
