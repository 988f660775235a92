"""Cost of a launch on this machine, by the runtime and by Triton; printed without a limit."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import prepared  # noqa: F401  (finds the runtime)
import pytest
import torch

from shardc.runtime.kernels import triton_launch

CALLS = 2000


def _module() -> ModuleType:
    path = Path(__file__).parents[1] / "e2e" / "gpu" / "kernels_of_a_test.py"
    spec = importlib.util.spec_from_file_location("kernels_of_a_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _us(call: Callable[[], None]) -> float:
    """The median over rounds of what the host takes for a launch, with a device that keeps up."""
    found = []
    for _ in range(9):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(CALLS):
            call()
        found.append((time.perf_counter() - started) / CALLS * 1e6)
        torch.cuda.synchronize()
    return sorted(found)[4]


def test_launches(gpu: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    x, y, plain_out, direct_out = (torch.randn(64, device=gpu) for _ in range(4))
    plain, direct = _module(), _module()
    if not triton_launch.is_known():
        pytest.skip("the launch of this Triton is not known: it is used as it is")
    triton_launch.with_launchers(direct)
    triton_us = _us(lambda: plain.launch(x, y, plain_out, 48))
    ours_us = _us(lambda: direct.launch(x, y, direct_out, 48))
    torch.testing.assert_close(plain_out[:48], (x + 2 * y)[:48])
    assert torch.equal(plain_out[:48], direct_out[:48])
    with capsys.disabled():
        print(f"\nlaunch: Triton's own {triton_us:.1f} us, ours {ours_us:.1f} us")
