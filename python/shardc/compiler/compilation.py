"""Compilation from a program to kernels: fuse, tune, compile, and leave to ATen what fails.

Both front ends use it: a training step's rank program and a graph of ``torch.compile``. Each gives a
function that makes a fresh copy of its program, because fusion rewrites the program in place.
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
    """Options for fusing and compiling a program.

    ``matmuls``: ``extern``, ``generated``, a function that decides for each region, or any other text for the
    target's own choice: by measurement if ``device`` is given, else by the cost model. ``constraints``: edges
    that the user forbids or forces. ``libraries``: matmuls outside kernels may call whichever library was
    measured to be fastest. ``tuned``: use configurations from the tuning database. ``tf32``: f32 matmuls may
    use tf32. ``explain``: make a report. ``load``: load the kernels into this process.
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
    """Result of a compilation.

    ``module`` is the program to run: level 4, or the original if nothing was fused (then ``is_fused`` is
    False). ``path`` holds the compiled kernels; ``kernels`` are they, loaded, if the options asked for it.
    ``without``: calls whose kernels did not compile. ``libraries``: number of calls that moved to another
    library or layout. ``verdicts``: the choice for each region, by call number.
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
        """Return whether every fused group has its kernel."""
        return self.is_fused and not self.without


@dataclass
class Compilation:
    """Compilation of one program for one target.

    ``make`` returns a new copy of the program at each call. ``strides``: for each result, the strides that
    callers expect if a kernel would lay it out differently, else None. ``writes``: as for ``fuse_module``.
    """

    make: Callable[[], ir.Module]
    target: Target
    options: CompileOptions = field(default_factory=CompileOptions)
    strides: Sequence[object] = ()
    writes: Sequence[tuple[int, int]] = ()

    def run(self) -> FusedProgram:
        """Compile the program. Ops whose kernels fail stay ATen calls, and one warning reports each cause.

        Raises FusionConstraintError if the user's constraints cannot be met.
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
        except Exception as error:  # ATen has every op, so any failure falls back to it
            warn_not_compiled(ALL, error)
            return FusedProgram(self.make(), is_fused=False)

    def fuse(self, without: frozenset[str] = frozenset()) -> FusedProgram:
        """Fuse the program to level 4 without compiling it.

        Calls in ``without`` stay calls. Raises as ``fuse_module``.
        """
        started, module, options = time.perf_counter(), self.make(), self.options
        verdicts: dict[str, Verdict] = {}
        layouts = self.target.choose_layouts(module, self.strides) if options.libraries else 0
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
        found = FusedProgram(
            module, without=without, libraries=layouts + libraries, report=report, verdicts=verdicts
        )
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
        """Load the kernels at ``path``, which were compiled from ``module``."""
        return self.target.load(path)

    def _kept(self, module: ir.Module) -> frozenset[ir.Value]:
        """Return the results whose strides differ from those that a kernel writes."""
        if not self.strides:
            return frozenset()
        block = module.body.operations[0].operation.regions[0].blocks[0]
        returned = list(block.operations)[-1].operation.operands
        return frozenset(v for v, strides in zip(returned, self.strides, strict=True) if strides is not None)


def region_choice(target: Target, options: CompileOptions) -> str | Choose:
    """Return the argument ``matmuls`` of ``fuse_module``: how to decide between calls and kernels.

    This is ``options.matmuls`` if it names a form or is a function. Otherwise regions are measured on
    ``device`` if there is one, else decided by the target's cost model; without a model all stay calls.
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
    """Return the calls (``kern.calls``) that the kernels in ``errors`` replace."""
    found = (op for op in kernels(module) if kernel_name(op) in errors)
    return frozenset(call for op in found for call in _texts(op, "kern.calls"))


def _warn_of(module: ir.Module, errors: Mapping[str, Exception]) -> None:
    """Warn once for each cause, naming the ops of the kernels that failed."""
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
