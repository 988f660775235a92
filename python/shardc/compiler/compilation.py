"""The one road from a program to kernels: fuse, tune, compile, leave out what failed, or stay with ATen.

A training step's rank program and a graph of ``torch.compile`` are its two front ends. Each says how a fresh
copy of its program is made, for fusing works in place, and gets back the program that runs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch_mlir import ir

from shardc.backends.base import Target
from shardc.backends.body.extract import kernel_name, kernels
from shardc.compiler.measured_regions import MeasuredRegions
from shardc.compiler.modelled_regions import ModelledRegions
from shardc.compiler.warn_once import cause_of, warn_not_compiled, warn_once
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.passes.fusion import FusionConstraintError
from shardc.dialects.location import source_line
from shardc.options.kernels import MATMUL_FORMS
from shardc.passes.fuse import kern_fuse
from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.grouping.explain import FusionReport, explain_fusion, noting, with_tuned
from shardc.passes.fuse.grouping.region import Choose, EveryRegion, Verdict
from shardc.runtime.errors import RuntimeFailure
from shardc.runtime.kernels.loaders import Kernels
from shardc.tuner.apply_tuned import use_tuned

log = logging.getLogger(__name__)

ALL = "all groups of the program"


@dataclass(frozen=True)
class CompileOptions:
    """How a program is fused and compiled.

    ``matmuls``: ``extern``, ``generated``, a function that decides on each region, or anything else for the
    target's own choice: by measurement on ``device``, by a model without one. ``constraints`` are the edges
    that a user forbids and forces. ``libraries``: products in no kernel may become calls of whichever library
    was measured to be faster; ``tuned``: kernels have the configurations of the tuning database. ``tf32``:
    products of f32 may be of tf32. ``explain``: a report is wanted. ``load``: the kernels run in this
    process.
    """

    rounding: str = "fused"
    matmuls: str | Choose = "auto"
    constraints: FusionConstraints = field(default_factory=FusionConstraints)
    device: torch.device | None = None
    libraries: bool = True
    tuned: bool = True
    tf32: bool = False
    explain: bool = False
    load: bool = False


@dataclass
class FusedProgram:
    """What came of a compilation.

    ``module`` is what runs: of level 4, or the program as it was where nothing could be fused (not
    ``is_fused``). ``path`` has the compiled kernels, ``kernels`` is these loaded, if asked. ``without``: the
    calls whose kernels did not compile. ``libraries``: how many calls became those of another library;
    ``verdicts``: what was chosen of regions, by the number of a call.
    """

    module: ir.Module
    is_fused: bool = True
    path: Path | None = None
    kernels: Kernels | None = None
    without: frozenset[str] = frozenset()
    libraries: int = 0
    report: FusionReport | None = None
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    fuse_s: float = 0.0
    compile_s: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether every group that was fused has its kernel."""
        return self.is_fused and not self.without


@dataclass
class Compilation:
    """A program on its way to the kernels of a target.

    ``make`` gives a copy of the program each time. ``strides`` are those of its results that callers expect
    laid out otherwise than a kernel does, None for the others; ``writes`` as for ``fuse_module``.
    """

    make: Callable[[], ir.Module]
    target: Target
    options: CompileOptions = field(default_factory=CompileOptions)
    strides: Sequence[object] = ()
    writes: Sequence[tuple[int, int]] = ()

    def run(self) -> FusedProgram:
        """The program with its kernels; what cannot be compiled stays calls of ATen, with one warning.

        Raises FusionConstraintError for what a user wants and cannot have.
        """
        try:
            self.target.check()
        except (ShardcError, RuntimeFailure) as error:
            warn_once(error)
            return FusedProgram(self.make(), is_fused=False)
        self.target.prepare()
        try:
            return self._compiled()
        except FusionConstraintError:
            raise
        except Exception as error:  # whatever went wrong in there, ATen has every op
            warn_not_compiled(ALL, error)
            return FusedProgram(self.make(), is_fused=False)

    def fuse(self, without: frozenset[str] = frozenset()) -> FusedProgram:
        """The program at level 4, not compiled; calls ``without`` stay calls. Raises as ``fuse_module``."""
        started, module, options = time.perf_counter(), self.make(), self.options
        verdicts: dict[str, Verdict] = {}
        choice = region_choice(self.target, options)
        how = {
            "exclude": self._kept(module),
            "without": without,
            "constraints": options.constraints,
            "writes": self.writes,
            "matmuls": choice if isinstance(choice, str) else noting(choice, verdicts),
            "capabilities": self.target.capabilities,
        }
        report = None
        if options.explain:
            report = explain_fusion(module, options.rounding, **how)
        else:
            kern_fuse.fuse_module(module, options.rounding, **how)
        libraries = self.target.choose_libraries(module, options.rounding) if options.libraries else 0
        if options.tuned and kernels(module):
            use_tuned(module, self.target)
        report = report and with_tuned(report, module)
        found = FusedProgram(module, without=without, libraries=libraries, report=report, verdicts=verdicts)
        found.fuse_s = time.perf_counter() - started
        return found

    def _compiled(self) -> FusedProgram:
        started, without = time.perf_counter(), frozenset[str]()
        while True:
            found = self.fuse(without)
            compiled = self.target.compile(found.module, self.options.tf32)
            failed = _calls(found.module, compiled.errors)
            if failed <= without:
                break
            _warn_of(found.module, compiled.errors)
            without |= failed
        found.path = compiled.path
        if self.options.load and compiled.path is not None:
            found.kernels = self._load(found.module, compiled.path)
        found.compile_s = time.perf_counter() - started - found.fuse_s
        return found

    def _load(self, module: ir.Module, path: Path) -> Kernels:
        """The kernels at ``path``, which are those of ``module``."""
        return self.target.load(path)

    def _kept(self, module: ir.Module) -> frozenset[ir.Value]:
        """The results that are not laid out as a kernel does."""
        if not self.strides:
            return frozenset()
        block = module.body.operations[0].operation.regions[0].blocks[0]
        returned = list(block.operations)[-1].operation.operands
        return frozenset(v for v, strides in zip(returned, self.strides, strict=True) if strides is not None)


def region_choice(target: Target, options: CompileOptions) -> str | Choose:
    """What decides whether matmuls and attention are calls or parts of kernels, as ``fuse_module`` takes it.

    ``matmuls`` itself where that says it; else measurement on ``device``, where kernels for the target run,
    the target's model of costs without one, or else calls.
    """
    rounding, tf32 = options.rounding, options.tf32
    if not isinstance(options.matmuls, str) or options.matmuls in MATMUL_FORMS:
        return options.matmuls
    model = ModelledRegions(target, rounding, tf32) if target.is_modelled else None
    if options.device is None:
        return "extern" if model is None else EveryRegion(model)
    measured = MeasuredRegions(target, options.device, rounding, tf32, model)
    return measured if model is None else EveryRegion(measured)


def _calls(module: ir.Module, errors: Mapping[str, Exception]) -> frozenset[str]:
    """What the kernels with these names stand for (``kern.calls``)."""
    found = (op for op in kernels(module) if kernel_name(op) in errors)
    return frozenset(call for op in found for call in _texts(op, "kern.calls"))


def _warn_of(module: ir.Module, errors: Mapping[str, Exception]) -> None:
    """A warning for each cause, which names the ops of its kernels."""
    groups: dict[str, list[ir.Operation]] = {}
    for op in kernels(module):
        if (error := errors.get(kernel_name(op))) is not None:
            groups.setdefault(cause_of(error), []).append(op)
    for failed in groups.values():
        ops = ", ".join(dict.fromkeys(_texts(failed[0], "kern.ops")))
        more = f" (and of {len(failed) - 1} more groups)" if len(failed) > 1 else ""
        warn_not_compiled(ops + more, errors[kernel_name(failed[0])], source_line(failed[0].location))


def _texts(op: ir.Operation, name: str) -> list[str]:
    return [ir.StringAttr(text).value for text in op.attributes[name]]
