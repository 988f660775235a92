"""Whether matmuls and attention are parts of kernels or calls of a library on the device that is here, by
measurement: a region of a program is compiled and run both ways, with what a model says beside it.
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
"""Times the distance of neighbouring numbers of a dtype, that results of two libraries may lie apart."""
REACH = 0.6
"""Share of a region's time in kernels: if calls of libraries take less, no configuration is tried."""

_lost: ContextVar[dict[str, Lost] | None] = ContextVar("shardc_lost_regions", default=None)


@dataclass
class Lost:
    """A region, at ``times`` places, of calls of libraries, which take ``needs`` of its kernels' time."""

    module: ir.Module = field(repr=False)
    needs: float
    times: int = 1


@contextmanager
def collect_lost() -> Iterator[dict[str, Lost]]:
    """The regions whose kernels lose inside the block, though not by far (REACH), by their texts."""
    found: dict[str, Lost] = {}
    token = _lost.set(found)
    try:
        yield found
    finally:
        _lost.reset(token)


@dataclass(frozen=True)
class MeasuredRegions:
    """Decides on regions by benchmarks of their two programs on ``device``; the disk keeps the outcome.

    Calls are those of the fastest library. Regions that ``model`` has no kernel for are calls. It decides,
    and the verdict says so, on those that cannot be measured: while a CUDA graph is captured, without the
    memory, or where neither program runs. Calls do, where there is no model.
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
            return modelled  # what is spared is memory: no benchmark compares that
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
        """Why no benchmark of the region is made; empty if one is."""
        calls = _operators(region.module)
        grouped = "the sizes of its groups are known as it runs" if GROUPED in calls else ""
        return grouped or self.target.unmeasured(calls)

    def _benchmark(self, region: Region, text: str) -> tuple[str, list[Candidate]]:
        """The subject and the candidates of a region's benchmark."""
        attentions = [call for name, call in _operators(region.module).items() if name in OF_LIBRARIES]
        names = [CALLS, *(name for call in attentions for name in self.target.libraries(call)), KERNELS]
        subject = f"{text}\n{self.rounding} {self.target.key()} {code_versions()} {tuning_choices()}"
        return subject, [Candidate(name, partial(self._checked, region.module, name)) for name in names]

    def _compile_ahead(self, text: str, beside: Sequence[Region], clock: Clock) -> None:
        """Compiles the kernels of all regions ``beside`` that one, which are measured next: each module that
        is compiled takes time besides what its kernels take.
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
        """A program; one of another library gives what calls give up to rounding, or AssertionError."""
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
    """Tensors that the program of a region is measured on; PyTorch's generators stay as they are.

    Zeros for what is no floating-point number; else halves, and on a GPU, whose clock depends on what it
    multiplies, small normal numbers.
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
    """The calls of ATen's and others' operators, one of each."""
    return {target_name(call): call for call in _calls(region) if call.name == "torch.operator"}


def _unmeasured(modelled: Verdict, why: str) -> Verdict:
    return Verdict(modelled.generated, f"{modelled.why}; not measured: {why}")


def _time(name: str, seconds: dict[str, float]) -> str:
    return f"{1e6 * seconds[name]:,.1f} us as {name}" if name in seconds else f"it does not run as {name}"
