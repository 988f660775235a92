"""``GpuRunner``: runs Triton modules on this machine's GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import cuda

from shardc.backends.tuning.decision import Pairs, Rule
from shardc.backends.tuning.runner import LIMIT_S, Runner
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Built, Outcome
from shardc.cost.machine import Gpu, find_gpu
from shardc.diagnostics.kernels import UnknownTarget
from shardc.diagnostics.triton import DriverTooOld
from shardc.diagnostics.tuner import GpuNotHere


class GpuRunner(Runner):
    """Runs modules on the current GPU, or in the interpreter if ``environment`` says TRITON_INTERPRET=1."""

    def __init__(self, limit_s: float = LIMIT_S, environment: Mapping[str, str] | None = None) -> None:
        super().__init__("shardc.backends.triton.tuning.run_job:run", limit_s, environment)
        self._interprets = (environment or {}).get("TRITON_INTERPRET") == "1"

    def runs(self, target: str) -> bool:
        """Return True if kernels for a target run on this machine. Raises UnknownTarget."""
        found = find_gpu(target)
        here = None if self._interprets else gpu_here()
        return self._interprets or (
            here is not None and (here.backend, here.arch) == (found.backend, found.arch)
        )

    def measure(
        self, task: Task, candidate: Built, incumbent: Path, rule: Rule
    ) -> Pairs | tuple[Outcome, str]:
        """As :meth:`Runner.measure`. Raises GpuNotHere."""
        if not self.runs(task.target):
            here = gpu_here()
            raise GpuNotHere(target=task.target, here=here.name if here else "no GPU")
        return super().measure(task, candidate, incumbent, rule)


def gpu_here() -> Gpu | None:
    """Return the current GPU's target; None without a GPU or if Triton does not compile for it."""
    if not cuda.is_available():
        return None
    from shardc.backends.triton.aot.device import device_target  # imports Triton

    try:
        return device_target(torch.device("cuda", cuda.current_device()))
    except (UnknownTarget, DriverTooOld):
        return None
