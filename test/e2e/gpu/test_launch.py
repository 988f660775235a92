"""Direct launches call the C launcher like Triton's own launch, under a simulated driver."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from shardc.runtime.kernels import triton_launch as launch

triton = pytest.importorskip(
    "triton", reason="Triton is not installed: its kernels can be neither run nor compiled"
)

from triton.runtime import driver  # noqa: E402

from .fake_driver import STREAM, CudaLauncher, fake_driver  # noqa: E402

pytestmark = pytest.mark.skipif(
    not launch.is_known(), reason=f"launches of Triton {triton.__version__} are not known"
)


@pytest.fixture
def h100(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SimpleNamespace]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    active = fake_driver()
    before = driver._active
    driver.set_active(active)
    yield active
    driver._active = before


def _module() -> ModuleType:
    path = Path(__file__).with_name("kernels_of_a_test.py")
    spec = importlib.util.spec_from_file_location("kernels_of_a_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _started(tensors: tuple[torch.Tensor, ...]) -> list[Any]:
    """The last launch, tensors by their addresses; without the numbers of loaded functions and Triton's own
    hooks.
    """
    last = CudaLauncher.started[-1]
    names = {t.data_ptr(): f"tensor {n}" for n, t in enumerate(tensors)}
    plain = [names.get(v.data_ptr()) if isinstance(v, torch.Tensor) else v for v in last]
    return [
        names.get(v, v) if isinstance(v, int) and v > 1 << 20 else v
        for v in plain[:4] + plain[5:10] + plain[13:]
    ]


@pytest.fixture
def binds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of kernels that Triton's own launch started."""
    seen: list[str] = []
    run = triton.runtime.jit.JITFunction.run
    monkeypatch.setattr(
        triton.runtime.jit.JITFunction,
        "run",
        lambda self, *a, **k: (seen.append(self.__name__), run(self, *a, **k))[1],
    )
    return seen


SIZES = [48, 50, 1, 64, 3_000_000_000]


def test_direct_launches_are_tritons(h100: SimpleNamespace, binds: list[str]) -> None:
    """A kernel each for sizes that Triton tells apart; every launch equals its own in all that C is given."""
    x, y, out = (torch.empty(64) for _ in range(3))
    plain, direct = _module(), launch.with_launchers(_module())
    for size in SIZES:
        for _ in range(2):
            plain.launch(x, y, out, size)
            wanted = _started((x, y, out))
            direct.launch(x, y, out, size)
            assert _started((x, y, out)) == wanted
            assert wanted[3] == STREAM and wanted[-5:-1] == ["tensor 0", "tensor 1", "tensor 2", size]
    assert binds.count("add") == 2 * len(SIZES) + 4  # 48 and 64 are of one kind
    assert isinstance(direct.add, triton.runtime.jit.JITFunction)  # what kernels call stays as it is


def test_constants_and_scratch(h100: SimpleNamespace, binds: list[str]) -> None:
    """Another constant is another kernel; a kernel with descriptors is given its memory by
    Triton's launcher.
    """
    x, out = torch.empty(64, 64), torch.empty(64, 64)
    plain, direct = _module(), launch.with_launchers(_module())
    for rows in (16, 32, 16, 32):
        plain.launch_all(x, out, rows)
        wanted = _started((x, out))
        direct.launch_all(x, out, rows)
        assert _started((x, out)) == wanted and wanted[:3] == [1, 2, 1] and "scratch" in wanted
    assert binds.count("copy") == 4 + 2


def test_what_goes_through_triton(h100: SimpleNamespace, binds: list[str]) -> None:
    """Unaligned tensors, another device's first launch, and launches under hooks."""
    x, y, out = (torch.empty(64) for _ in range(3))
    direct = launch.with_launchers(_module())
    direct.launch(x, y, out, 48)
    direct.launch(x, y, out, 48)
    assert len(binds) == 1
    direct.launch(x[1:], y, out, 48)
    direct.launch(x[1:], y, out, 48)
    assert len(binds) == 3
    h100.device = 1
    direct.launch(x, y, out, 48)
    direct.launch(x, y, out, 48)
    assert len(binds) == 4 and CudaLauncher.started[-1][3] == STREAM + 1
    hook = lambda metadata: None  # noqa: E731
    triton.knobs.runtime.launch_enter_hook.add(hook)
    try:
        direct.launch(x, y, out, 48)
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(hook)
    assert len(binds) == 5
    direct.launch(x, y, out, 48)
    assert len(binds) == 5


def test_another_triton_keeps_its_own_launch(h100: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "__version__", "3.99.0")
    module = _module()
    before = module.launch
    assert launch.with_launchers(module).launch is before
