"""A driver of an H100 that is not there: kernels are compiled for it, and its C launcher notes what it is
asked for.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from triton.backends.compiler import GPUTarget

STREAM = 77


class CudaLauncher:
    """Triton's launcher in Python, with a ``launch`` that is no C function."""

    started: list[tuple[Any, ...]]

    def __init__(self, source: Any, metadata: Any) -> None:
        self.global_scratch_size = metadata.global_scratch_size
        self.profile_scratch_size = metadata.profile_scratch_size
        self.launch_cooperative_grid = metadata.launch_cooperative_grid
        self.launch_pdl = metadata.launch_pdl
        self.launch = lambda *given: CudaLauncher.started.append(given)

    def __call__(self, x: int, y: int, z: int, stream: int, function: Any, *rest: Any) -> None:
        scratch = "scratch" if self.global_scratch_size else None
        self.launch(
            x, y, z, stream, function, self.launch_cooperative_grid, self.launch_pdl, scratch, None, *rest
        )


def fake_driver() -> SimpleNamespace:
    """What ``triton.runtime.driver.set_active`` takes. ``device`` may be changed."""
    CudaLauncher.started = []
    loaded = iter(range(1000, 2000))
    active = SimpleNamespace(device=0, launcher_cls=CudaLauncher)
    active.get_current_device = lambda: active.device
    active.get_current_stream = lambda device: STREAM + device
    active.get_current_target = lambda: GPUTarget("cuda", 90, 32)
    active.utils = SimpleNamespace(
        get_device_properties=lambda device: {"max_shared_mem": 232448},
        load_binary=lambda name, kernel, shared, device: (object(), next(loaded), 32, 0, 1024),
    )
    return active
