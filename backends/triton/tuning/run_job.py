"""Process of the GPU runner: checks and times modules of one task on the current GPU.

Under ``TRITON_INTERPRET=1``, they run in Triton's interpreter and the CPU's clock times them.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from shardc.backends.benchmark.clocks import Clock, HostClock
from shardc.backends.triton.clock import DeviceClock
from shardc.backends.tuning.bench import Bench, Job, Kernel, Measure
from shardc.backends.tuning.decision import Pairs
from shardc.backends.tuning.task import Task
from shardc.runtime.kernels.triton_kernels import Modules, interprets


class GpuBench(Bench):
    """Times modules between two events of the current stream; the caches are cleared before each."""

    def __init__(self, task: Task) -> None:
        super().__init__(task, "cpu" if interprets() else "cuda")

    def measure(self, asked: Measure) -> Pairs | str:
        if not interprets():
            return super().measure(asked)
        from shardc.backends.triton.interpreter.interpret_worker import patch

        with patch():
            return super().measure(asked)

    def load(self, path: Path) -> Kernel:
        """Load a module beside its binaries' cache; a flat kernel is called for one set of tensors."""
        modules = Modules(path.parent)
        if self.size is None:
            return modules.kernel(path.stem, self.outputs)
        batch = modules.batch(path.stem, [(self.size, self.outputs)])
        return lambda *tensors: batch(tensors)[0]

    def calls(self, incumbent: Kernel) -> int:
        return 1

    def seconds(self, kernel: Kernel, calls: int, number: int) -> float:
        return self._clock.seconds(lambda: kernel(*self.sets[number]))

    @cached_property
    def _clock(self) -> Clock:
        return HostClock() if self.device.type == "cpu" else DeviceClock(self.device)


run = Job(GpuBench)
