"""Targets that are GPUs: kernels are Triton modules, compiled ahead of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import cuda

from shardc.backends.base import CompiledKernels, Target
from shardc.backends.triton.aot import archive
from shardc.backends.triton.aot.compile import check_triton
from shardc.backends.triton.aot.local_gpu import device_gpu, local_device
from shardc.cost.machine import GPUS, Gpu
from shardc.passes.fuse.grouping.capabilities import ALL
from shardc.runtime.kernels.triton_kernels import Modules

if TYPE_CHECKING:
    from torch_mlir import ir

    from shardc.backends.estimate import Estimated
    from shardc.backends.triton.clock import DeviceClock
    from shardc.backends.tuning.target import Tuning


@dataclass(frozen=True)
class TritonTarget(Target):
    """A GPU, which this machine may not have."""

    gpu: Gpu

    backend = "triton"
    capabilities = ALL
    is_modelled = True

    @property
    def name(self) -> str:
        return self.gpu.name

    def on_this_machine(self) -> str:
        return "Triton compiles for any GPU"

    @classmethod
    def names(cls) -> Sequence[str]:
        return tuple(GPUS)

    @classmethod
    def named(cls, name: str) -> TritonTarget | None:
        return cls(GPUS[name]) if name in GPUS else None

    @classmethod
    def of_device(cls, device: torch.device) -> TritonTarget | None:
        found = device_gpu(device)
        return None if found is None else cls(found)

    def check(self) -> None:
        """Raises TritonMissing, TritonTooOld."""
        check_triton(self.name)

    def compile(self, module: ir.Module, tf32: bool = False) -> CompiledKernels:
        from shardc.backends.triton.compile_module import compile_module

        return compile_module(module, self.gpu, tf32)

    @staticmethod
    def load(path: Path) -> Modules:
        """Raises BadTriton, BadDriver."""
        return Modules(path)

    @staticmethod
    def find(name: str) -> Path | None:
        return archive.find(name)

    def key(self) -> str:
        return str(self.gpu)

    def local_device(self) -> torch.device | None:
        return local_device(self.gpu)

    def clock(self, device: torch.device) -> DeviceClock:
        from shardc.backends.triton.clock import DeviceClock

        return DeviceClock(device)

    def unmeasured(self, calls: Mapping[str, ir.Operation]) -> str:
        return "a CUDA graph is being captured" if cuda.is_current_stream_capturing() else ""

    def libraries(self, call: ir.Operation) -> Sequence[str]:
        from shardc.backends.triton.attention.library_call import other_libraries

        return other_libraries(call) if self.gpu.backend == "cuda" else ()

    def estimate(self, module: ir.Module, tf32: bool = False) -> list[Estimated]:
        """Raises TritonKernelNotSupported, KernelNotSupported."""
        from shardc.backends.triton.estimates import Estimator

        return Estimator(self.gpu, tf32).program(module)

    def tuning(self) -> Tuning:
        from shardc.backends.triton.tuning.builder import GpuBuilder
        from shardc.backends.triton.tuning.kernel import sketches
        from shardc.backends.triton.tuning.runner import GpuRunner
        from shardc.backends.tuning.target import Tuning, generator_text

        generator = generator_text(self.backend, Path(__file__).with_name("config.py"), "triton")
        return Tuning(
            self.name, 1, lambda functions, _: sketches(functions, self.gpu), GpuBuilder, GpuRunner, generator
        )

    def rates(self) -> str:
        flops, memory = self.gpu.matmul_flop_s / 1e12, self.gpu.memory_bytes_s / 1e12
        return f"{flops:,.0f} TFLOP/s in 16 bits, {memory:.1f} TB/s"
