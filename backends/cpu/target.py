"""Target for the CPU of this machine."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from shardc.backends.base import CompiledKernels, Target
from shardc.backends.benchmark.host import host_model
from shardc.backends.cpu.host import NEEDED, check_target, features, target
from shardc.backends.cpu.object_code.link import system_linker
from shardc.passes.fuse.grouping.capabilities import Capabilities
from shardc.runtime.kernels.library import Library, cpu_features
from shardc.runtime.kernels.team import openmp_path

if TYPE_CHECKING:
    from torch_mlir import ir

    from shardc.backends.tuning.target import Tuning

log = logging.getLogger(__name__)

CPU = "cpu"
RUN_JOB = "shardc.backends.cpu.tuning.run_job:run"


class CpuTarget(Target):
    """Target with machine code in a shared object, for this machine's or ``$SHARDC_TARGET``'s features."""

    backend = CPU
    pooled = True
    capabilities = Capabilities(pooled_results=True, depthwise=True, convolutions=True, scans=True)
    runs_on_host = True
    compiles_ahead = True

    @classmethod
    def named(cls, name: str) -> CpuTarget | None:
        """Return the target for its name, or for an artefact's description: architecture and features."""
        return cls() if name.partition(" ")[0] in (CPU, *NEEDED) else None

    @classmethod
    def of_device(cls, device: torch.device) -> CpuTarget | None:
        return cls() if device.type == CPU else None

    def on_this_machine(self) -> str:
        linker = system_linker()
        return f"{host_model()}: {target()}; linker: {' '.join(linker) if linker else 'none needed'}"

    def check(self) -> None:
        """Raise UnsupportedTarget, or RuntimeFailure without torch's OpenMP."""
        check_target()
        openmp_path()

    def prepare(self) -> None:
        from shardc.backends.cpu.object_code.object_code import start_worker

        start_worker()

    def compile(self, module: ir.Module, tf32: bool = False) -> CompiledKernels:
        from shardc.backends.body.extract import kernels
        from shardc.backends.cpu import compile as compiler

        if not kernels(module):
            return CompiledKernels()
        try:
            return CompiledKernels(compiler.build_library(module))
        except Exception:  # other kernels may still compile
            errors = compiler.failing(module)
            if not errors:
                raise
            return CompiledKernels(errors=errors)

    def compile_ahead(self, modules: Sequence[ir.Module]) -> None:
        from shardc.backends.cpu import compile as compiler

        try:
            compiler.compile_ahead(modules)
        except Exception:  # after a failure of any kernel, modules are compiled one by one
            log.debug("kernels did not compile together", exc_info=True)

    @staticmethod
    def load(path: Path) -> Library:
        """Load a library. Raises BadLibrary."""
        return Library(path)

    def key(self) -> str:
        return f"{target()} {host_model()}"

    def described(self) -> str:
        return target()

    def local_device(self) -> torch.device:
        return torch.device(CPU)

    def tuning(self) -> Tuning:
        """Return the tuning of this CPU's model, with its features if ``$SHARDC_TARGET`` names fewer.

        Points may be built while others are timed, because the thread's own clock is used.
        """
        from shardc.backends.cpu.tuning.builder import CpuBuilder
        from shardc.backends.cpu.tuning.kernel import sketches
        from shardc.backends.tuning.runner import Runner
        from shardc.backends.tuning.target import Tuning, generator_text

        fewer = "" if features() == cpu_features() else f" {target()}"
        name, threads = f"{CPU} {host_model()}{fewer}", torch.get_num_threads()
        generator = generator_text(CPU, Path(__file__).with_name("config.py"), "torch-mlir")
        runner = partial(Runner, RUN_JOB)
        return Tuning(
            name, threads, sketches, CpuBuilder, runner, generator, timed_alone=False, is_pretrained=True
        )

    def choose_layouts(self, module: ir.Module, returned: Sequence[object]) -> int:
        from shardc.backends.cpu.convolutions import measured_seconds
        from shardc.passes.extern.torch_channels_last import relayout_module

        return relayout_module(module, measured_seconds, returned)

    def choose_libraries(self, module: ir.Module, rounding: str) -> int:
        from shardc.backends.cpu.contractions import measured_form
        from shardc.passes.extern.kern_extern import extern_module

        return extern_module(module, measured_form, rounding)
