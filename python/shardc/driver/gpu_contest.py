"""Whether matmuls and attention are parts of kernels or calls of a library on the GPU that is here, by measurement:
the contest of ``piece_contest.py`` on the device, by events, with what the models say beside it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch_mlir import ir

from shardc.backends.measure.clocks import Clock, DeviceClock
from shardc.backends.measure.contest import Candidate, decide
from shardc.backends.torch.emit_graph import emit_graph
from shardc.backends.triton.folder import write_folder
from shardc.backends.triton.targets import Target
from shardc.dialects.aten.call import target_name
from shardc.driver.attention_call import other_libraries
from shardc.driver.gpu_compile import try_kernels
from shardc.driver.gpu_estimates import Estimator
from shardc.driver.gpu_target import gpu_target
from shardc.driver.graph_program import load
from shardc.driver.piece_inputs import piece_inputs
from shardc.driver.piece_model import NO_KERNEL, ModelledMatmuls, text_of
from shardc.driver.program_cache import versions
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.passes.fuse.lower_attention import OF_LIBRARIES, call_library
from shardc.passes.fuse.lower_grouped_matmul import GROUPED
from shardc.passes.fuse.piece import Choose, EveryPiece, Piece, Verdict
from shardc.passes.program import copy_module, find_function
from shardc.runtime.attention import LIBRARIES
from shardc.runtime.connect import own_device
from shardc.runtime.triton_kernels import Modules
from shardc.tuner.database.place import tuning_choices

CALLS, KERNELS = "calls", "kernels"
ROUNDING = 32
"""Times the distance of neighbouring numbers of a dtype, that results of two libraries may lie apart."""
PROCESSES = 4
"""That compile a piece's kernels."""

cuda: Any = torch.cuda


def is_here(device: torch.device) -> bool:
    """Whether programs can be run on a device, which may be that of tensors without memory."""
    return device.type == "cuda" and cuda.is_available()


def device_for(target: Target) -> torch.device | None:
    """This process's GPU, if kernels for ``target`` are those for it; None where there is none, or another."""
    device = own_device()
    found = gpu_target(device)
    return (
        device if found is not None and (found.backend, found.arch) == (target.backend, target.arch) else None
    )


def gpu_matmuls(target: Target, device: torch.device | None, numerics: str, tf32: bool) -> Choose:
    """What has matmuls and attention in kernels that are faster so: measured on ``device``, estimated without one."""
    model = ModelledMatmuls(Estimator(target, tf32), numerics)
    return EveryPiece(model if device is None else MeasuredOnGpu(target, device, model, DeviceClock(device)))


@dataclass(frozen=True)
class MeasuredOnGpu:
    """Decides on pieces by a contest of their two programs on ``device``, whose outcome is remembered on disk.

    Pieces that the model has no kernel for are calls. The model decides, and the verdict says so, on those that cannot
    be measured: while a CUDA graph is captured, without the memory, or where neither program runs.
    """

    target: Target
    device: torch.device
    model: ModelledMatmuls
    clock: Clock
    _known: dict[str, Verdict] = field(default_factory=dict, repr=False)

    def __call__(self, piece: Piece) -> Verdict:
        text = text_of(piece)
        if text not in self._known:
            self._known[text] = self._verdict(piece)
        return self._known[text]

    def _verdict(self, piece: Piece) -> Verdict:
        modelled = self.model(piece)
        if (
            modelled.why.startswith(NO_KERNEL) or piece.spared_bytes
        ):  # what is spared is memory: no contest of times
            return modelled
        named = {target_name(call): call for call in _calls(piece.module) if call.name == "torch.operator"}
        if GROUPED in named:
            return _unmeasured(modelled, "the sizes of its groups are known as it runs")
        if cuda.is_current_stream_capturing():
            return _unmeasured(modelled, "a CUDA graph is being captured")
        subject = f"{text_of(piece)}\n{self.model.numerics} {self.target} {versions()} {tuning_choices()}"
        attentions = [
            call for target, call in named.items() if target in OF_LIBRARIES and self.target.backend == "cuda"
        ]
        names = (CALLS, *(name for call in attentions for name in other_libraries(call)), KERNELS)
        candidates = [Candidate(name, partial(self._checked, piece.module, name)) for name in names]
        try:
            with cuda.device(self.device):
                found = decide(subject, candidates, self.clock)
        except torch.OutOfMemoryError:
            return _unmeasured(modelled, "there is too little memory")
        if CALLS not in found.seconds:
            return _unmeasured(modelled, "the program of calls does not run by itself")
        times = ", ".join(_time(name, found.seconds) for name in names)
        library = found.name if found.name in LIBRARIES else ""
        return Verdict(found.name == KERNELS, f"measured: {times} ({modelled.why})", library)

    def _checked(self, piece: ir.Module, name: str) -> Callable[[], object]:
        """A program; one of another library gives what calls give, but for rounding. Raises AssertionError."""
        call = self._built(piece, name)
        if name in LIBRARIES:
            both = zip(call(), self._built(piece, CALLS)(), strict=True)
            for got, wanted in both:
                bound = ROUNDING * torch.finfo(wanted.dtype).eps
                atol = bound * float(wanted.abs().nan_to_num(0, 0, 0).max())
                torch.testing.assert_close(got, wanted, rtol=bound, atol=atol, check_stride=False)
        return call

    def _built(self, piece: ir.Module, name: str) -> Callable[[], object]:
        module = copy_module(piece)
        if name in LIBRARIES:
            for op in _calls(module):
                if op.name == "torch.operator" and target_name(op) in OF_LIBRARIES:
                    call_library(op, name)
        function = find_function(module)
        assert function is not None
        fuse_module(module, self.model.numerics, matmuls=EveryPiece(lambda _: Verdict(name == KERNELS, "")))
        results = range(len(ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results))
        folder = tempfile.TemporaryDirectory(prefix="shardc-piece-")
        path = Path(folder.name)
        made, failed = try_kernels(module, self.target, path, PROCESSES, self.model.estimator.tf32)
        for error in failed.values():
            raise error
        library = None
        if made:
            write_folder(made, path)
            library = Modules(path)
        program = load(emit_graph(module, results), library)
        inputs, rank = piece_inputs(function, self.device), SimpleNamespace(device=self.device, folder=folder)
        return lambda: program(rank, list(inputs))


def _calls(piece: ir.Module) -> list[ir.Operation]:
    function = find_function(piece)
    assert function is not None
    return [op.operation for op in function.regions[0].blocks[0].operations]


def _unmeasured(modelled: Verdict, why: str) -> Verdict:
    return Verdict(modelled.generated, f"{modelled.why}; not measured: {why}")


def _time(name: str, seconds: dict[str, float]) -> str:
    return f"{1e6 * seconds[name]:,.1f} us as {name}" if name in seconds else f"it does not run as {name}"
