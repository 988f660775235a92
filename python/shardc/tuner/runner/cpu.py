"""``CpuRunner``: libraries of CPU kernels, on the threads of the task."""

from __future__ import annotations

from shardc.tuner.runner.base import LIMIT_S, Runner


class CpuRunner(Runner):
    """``job`` is what its process runs, ``module:function``."""

    def __init__(self, limit_s: float = LIMIT_S, job: str = "shardc.tuner.runner.cpu_job:run") -> None:
        super().__init__(job, limit_s)
