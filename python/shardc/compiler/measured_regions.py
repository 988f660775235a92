"""Decides by measurement whether matmuls and attention go into kernels or stay library calls.

Both programs of a region are compiled and run on the present device. The model's estimate is reported
beside the measured times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import torch
from torch_mlir import ir

from shardc.backends.base import Target
from shardc.backends.benchmark.benchmark import Candidate, Choice, decide, is_decided
from shardc.backends.benchmark.clocks import Clock
from shardc.backends.torch.emit_graph import emit_graph
from shardc.backends.torch.load_graph import current, load_graph
from shardc.cache.versions import code_versions
from shardc.compiler.modelled_regions import NO_KERNEL, ModelledRegions, text_of
from shardc.dialects.aten.call import target_name
from shardc.dialects.aten.types import Order, read_type
from shardc.dialects.kern.strides import argument_strides
from shardc.passes.fuse.grouping.region import EveryRegion, Region, Verdict
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.passes.fuse.structured.attention import OF_LIBRARIES, call_library
from shardc.passes.fuse.structured.grouped_matmul import GROUPED
from shardc.passes.manager.program import copy_module, find_function
from shardc.tuner.apply_tuned import use_tuned
from shardc.tuner.database.place import tuning_choices

CALLS, KERNELS = "calls", "kernels"
ROUNDING = 32
"""Allowed difference between the results of two libraries, in machine epsilons of the dtype."""
REACH = 0.6
"""Ratio of calls' time to kernels' time below which tuning cannot help, so no configuration is tried."""

_lost: ContextVar[dict[str, Lost] | None] = ContextVar("shardc_lost_regions", default=None)


@dataclass
class Lost:
    """Region that stays library calls at ``times`` places; the calls take ``needs`` of its kernels' time."""

    module: ir.Module = field(repr=False)
    needs: float
    times: int = 1


@contextmanager
def collect_lost() -> Iterator[dict[str, Lost]]:
    """Collect regions whose kernels lose inside the block, but not by far (REACH), by their texts."""
    found: dict[str, Lost] = {}
    token = _lost.set(found)
    try:
        yield found
    finally:
        _lost.reset(token)


@dataclass(frozen=True)
class MeasuredRegions:
    """Decide on regions by benchmarks of both programs on ``device``; results are cached on disk.

    The calls' candidate is the fastest library. Regions without a kernel, by ``model``, stay calls. ``model``
    also decides, and the verdict says so, if a region cannot be measured: during CUDA graph capture, without
    enough memory, or if neither program runs. Without a model such regions stay calls.
    """

    target: Target
    device: torch.device
    rounding: str = "fused"
    tf32: bool = False
    model: ModelledRegions | None = None
    clock: Clock | None = None
    _known: dict[str, Verdict] = field(default_factory=dict, repr=False)
    _ahead: set[str] = field(default_factory=set, repr=False)
    _programs: dict[tuple[ir.Module, str], ir.Module] = field(default_factory=dict, repr=False)

    def __call__(self, region: Region) -> Verdict:
        text = text_of(region)
        if text not in self._known:
            self._known[text] = self._verdict(region, text)
        elif (lost := _lost.get()) is not None and text in lost:
            lost[text].times += 1
        return self._known[text]

    def _verdict(self, region: Region, text: str) -> Verdict:
        modelled = Verdict(False, "there is no model of costs") if self.model is None else self.model(region)
        if modelled.why.startswith(NO_KERNEL) or region.spared_bytes:
            return modelled  # the gain is memory, which a benchmark of time does not compare
        if why := self._unmeasured_because(region):
            return _unmeasured(modelled, why)
        subject, candidates = self._benchmark(region, text)
        clock = self.clock or self.target.clock(self.device)
        try:
            with current(self.device):
                if self.target.compiles_ahead and not is_decided(subject, candidates, clock):
                    self._compile_ahead(text, region.beside, clock)
                found = decide(subject, candidates, clock)
        except torch.OutOfMemoryError:
            return _unmeasured(modelled, "there is too little memory")
        self._note(region.module, text, found)
        if CALLS not in found.seconds and self.model is not None:
            return _unmeasured(modelled, "the program of calls does not run by itself")
        beside = f" ({modelled.why})" if self.model is not None else ""
        times = ", ".join(_time(candidate.name, found.seconds) for candidate in candidates)
        library = "" if found.name in (CALLS, KERNELS) else found.name
        return Verdict(found.name == KERNELS, f"measured: {times}{beside}", library)

    def _unmeasured_because(self, region: Region) -> str:
        """Say why the region cannot be measured; empty if it can."""
        calls = _operators(region.module)
        grouped = "the sizes of its groups are known as it runs" if GROUPED in calls else ""
        return grouped or self.target.unmeasured(calls)

    def _benchmark(self, region: Region, text: str) -> tuple[str, list[Candidate]]:
        """Return the cache key and the candidates of a region's benchmark."""
        attentions = [call for name, call in _operators(region.module).items() if name in OF_LIBRARIES]
        names = [CALLS, *(name for call in attentions for name in self.target.libraries(call)), KERNELS]
        subject = f"{text}\n{self.rounding} {self.target.key()} {code_versions()} {tuning_choices()}"
        return subject, [Candidate(name, partial(self._checked, region.module, name)) for name in names]

    def _compile_ahead(self, text: str, beside: Sequence[Region], clock: Clock) -> None:
        """Compile the kernels of all regions in ``beside`` together, since they are measured next.

        Compiling one module for all saves the fixed cost of a module for each.
        """
        if text in self._ahead:
            return
        regions: dict[str, Region] = {}
        for region in beside:
            regions.setdefault(text_of(region), region)
        self._ahead.update(regions)
        for text, region in regions.items():
            is_asked = text not in self._known and not self._unmeasured_because(region)
            if is_asked and not is_decided(*self._benchmark(region, text), clock):
                for name in (CALLS, KERNELS):
                    self._programs[region.module, name] = self._tuned(region.module, name)
        self.target.compile_ahead(list(self._programs.values()))

    def _note(self, region: ir.Module, text: str, found: Choice) -> None:
        lost, seconds = _lost.get(), found.seconds
        if lost is None or found.name != CALLS or KERNELS not in seconds:
            return
        if text in lost:
            lost[text].times += 1
        elif seconds[CALLS] >= REACH * seconds[KERNELS]:
            lost[text] = Lost(self._fused(region, KERNELS), min(1.0, seconds[CALLS] / seconds[KERNELS]))

    def _checked(self, region: ir.Module, name: str) -> Callable[[], Sequence[object]]:
        """Build a program.

        One of another library must equal the calls up to rounding, else AssertionError.
        """
        call = self._built(region, name)
        if name not in (CALLS, KERNELS):
            for got, wanted in zip(call(), self._built(region, CALLS)(), strict=True):
                assert isinstance(wanted, torch.Tensor), "a region's results are tensors"
                bound = ROUNDING * torch.finfo(wanted.dtype).eps
                atol = bound * float(wanted.abs().nan_to_num(0, 0, 0).max())
                torch.testing.assert_close(got, wanted, rtol=bound, atol=atol, check_stride=False)
        return call

    def _fused(self, region: ir.Module, name: str) -> ir.Module:
        module = copy_module(region)
        if name not in (CALLS, KERNELS):
            for op in _calls(module):
                if op.name == "torch.operator" and target_name(op) in OF_LIBRARIES:
                    call_library(op, name)
        fuse_module(module, self.rounding, matmuls=EveryRegion(lambda _: Verdict(name == KERNELS, "")))
        return module

    def _tuned(self, region: ir.Module, name: str) -> ir.Module:
        module = self._fused(region, name)
        use_tuned(module, self.target)
        return module

    def _built(self, region: ir.Module, name: str) -> Callable[[], Sequence[object]]:
        module = self._programs.pop((region, name), None) or self._tuned(region, name)
        function = find_function(module)
        assert function is not None
        if name == CALLS:
            self.target.choose_libraries(module, self.rounding)
        results = range(len(ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results))
        compiled = self.target.compile(module, self.tf32)
        for error in compiled.errors.values():
            raise error
        kernels = None if compiled.path is None else self.target.load(compiled.path)
        program = load_graph(emit_graph(module, results, pooled=self.target.pooled), kernels)
        inputs, rank = _inputs(function, self.device), SimpleNamespace(device=self.device)
        return lambda: program(rank, list(inputs))


def _inputs(function: ir.Operation, device: torch.device) -> list[torch.Tensor]:
    """Return tensors to measure a region with, without changing PyTorch's generators.

    Integers and booleans are zeros. Floats are 0.5 on a CPU; on a GPU, whose clock depends on the data, they
    are small normal numbers.
    """
    strides = {ir.BlockArgument(v).arg_number: found for v, found in argument_strides(function).items()}
    generator = None if device.type == "cpu" else torch.Generator(device).manual_seed(0)
    made = []
    for number, argument in enumerate(function.regions[0].blocks[0].arguments):
        type_ = read_type(argument.type)
        assert type_ is not None
        tensor = torch.empty(type_.shape, dtype=type_.dtype, device=device)
        if number in strides:
            own = strides[number]
            assert not isinstance(own, Order), "a region's sizes are known"
            tensor = torch.empty_strided(type_.shape, own, dtype=type_.dtype, device=device)
        if not type_.dtype.is_floating_point:
            made.append(tensor.zero_())
        elif generator is None:
            made.append(tensor.fill_(0.5))
        else:
            made.append(tensor.normal_(0, 0.1, generator=generator))
    return made


def _calls(region: ir.Module) -> list[ir.Operation]:
    function = find_function(region)
    assert function is not None
    return [op.operation for op in function.regions[0].blocks[0].operations]


def _operators(region: ir.Module) -> dict[str, ir.Operation]:
    """Return one call of each operator, by the operator's name."""
    return {target_name(call): call for call in _calls(region) if call.name == "torch.operator"}


def _unmeasured(modelled: Verdict, why: str) -> Verdict:
    return Verdict(modelled.generated, f"{modelled.why}; not measured: {why}")


def _time(name: str, seconds: dict[str, float]) -> str:
    return f"{1e6 * seconds[name]:,.1f} us as {name}" if name in seconds else f"it does not run as {name}"
