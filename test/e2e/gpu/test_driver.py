"""All functions of a GPU's driver, and of PyTorch, that shardc uses exist."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from shardc.runtime.kernels import triton_kernels

ROOT = Path(__file__).parents[3]
ROOMS = (
    "python/shardc/runtime",
    "python/shardc/compiler",
    "python/shardc/dynamo",
    "python/shardc/step",
    "backends/benchmark",
    "backends/triton",
    "test/gpu",
    "test/bench/gpu",
)


def test_the_driver_itself_is_asked_for_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch has no function for it."""

    class Driver:
        def __init__(self, name: str) -> None:
            assert name == "libcuda.so.1"

        def cuDriverGetVersion(self, version: Any) -> int:
            version._obj.value = 12040
            return 0

    monkeypatch.setattr(ctypes, "CDLL", Driver)
    assert triton_kernels.driver_version() == 12040


@pytest.mark.parametrize("room", ROOMS)
def test_what_is_asked_of_torch_cuda_is_there(room: str) -> None:
    """Also in a build of PyTorch for CPUs, whose stubs name what only one for GPUs has in ``torch._C``."""
    stubs = (Path(torch.__file__).parent / "_C" / "__init__.pyi").read_text()
    for path in (ROOT / room).rglob("*.py"):
        text = path.read_text()
        for name in re.findall(r"(?<![\w.])(?:torch\.)?cuda\.(\w+)\(", text):
            assert hasattr(torch.cuda, name), f"{path}: torch.cuda.{name}"
        for name in re.findall(r"torch\._C\._(cuda_\w+)|torch\._C, \"_(cuda_\w+)\"", text):
            assert f"def _{''.join(name)}(" in stubs, f"{path}: torch._C._{''.join(name)}"
