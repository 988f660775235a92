"""The most memory that a program's tensors take at once: of ``torch.compile``'s graphs, and of a rank's step.

``TORCH_LOGS="+shardc.driver.memory"`` prints that of every graph, :func:`explain_memory` hands them over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch._functorch.config
from torch.fx import GraphModule
from torch.multiprocessing.reductions import StorageWeakRef
from torch_mlir import ir

from shardc.backends.torch.dry_run import META, Peak, Workspace, dry_run
from shardc.backends.torch.emit import emit_program
from shardc.diagnostics.memory import PeakUnknown
from shardc.dialects.pipe.schedule_op import find_schedule
from shardc.driver.fusion import collect_fusion
from shardc.driver.manifest import describe_program
from shardc.driver.pipeline_report import PipelineReport, describe_pipeline
from shardc.driver.report import size_text, table
from shardc.frontend.recorder import FORWARD
from shardc.runtime.comm import Rank
from shardc.runtime.groups import Group, place_of
from shardc.runtime.kernels import Library
from shardc.runtime.layout import Leaf
from shardc.runtime.mesh import Axes, Mesh
from shardc.runtime.pipeline import Part, part_of
from shardc.runtime.program import Kernels

log = logging.getLogger(__name__)

Peaks = list[tuple[str, Peak | PeakUnknown]]
"""The phase of each graph, and its peak, or why that is not known."""

_peaks: ContextVar[Peaks | None] = ContextVar("shardc_peaks", default=None)


@contextmanager
def collect_peaks() -> Iterator[Peaks]:
    """The list that it gives has the peaks of the graphs that are compiled inside of the block."""
    peaks: Peaks = []
    token = _peaks.set(peaks)
    try:
        yield peaks
    finally:
        _peaks.reset(token)


def say_peak(
    phase: str, text: str, graph: GraphModule, constants: Sequence[torch.Tensor], library: Kernels | None
) -> None:
    """Log the peak of a graph's program, or hand it over, where somebody asks."""
    peaks = _peaks.get()
    if peaks is None and not log.isEnabledFor(logging.DEBUG):
        return
    try:
        peak: Peak | PeakUnknown = graph_peak(phase, text, graph, constants, library)
    except PeakUnknown as unknown:
        peak = unknown
    log.debug("%s: %s", phase, render(peak))
    if peaks is not None:
        peaks.append((phase, peak))


def graph_peak(
    phase: str,
    text: str,
    graph: GraphModule,
    constants: Sequence[torch.Tensor],
    library: Kernels | None = None,
) -> Peak:
    """The peak of the program ``text`` of a graph with its kernels, at the sizes of the traced call.

    What a forward is given lives on, and so do a backward's parameters; what a forward saved dies with its last use.
    Raises PeakUnknown.
    """
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    lasting: list[Any] = []

    def arguments() -> list[Any]:
        storages: dict[StorageWeakRef, torch.UntypedStorage] = {}
        values = [_without_data(node.meta.get("val"), storages) for node in nodes]
        values += [_without_data(constant, storages) for constant in constants]
        kept = [phase == FORWARD or node.name.startswith("primals") for node in nodes] + [True] * len(
            constants
        )
        lasting.extend(value for value, stays in zip(values, kept, strict=True) if stays)
        return [SimpleNamespace(device=META), values]

    return dry_run(text, "graph", arguments, _workspace(library))


def _workspace(library: Kernels | None) -> Workspace | None:
    """What kernels work in; those of a GPU have none."""
    return library.workspace_bytes if isinstance(library, Library) else None


def _without_data(value: Any, storages: dict[StorageWeakRef, torch.UntypedStorage]) -> Any:
    """A traced input on the meta device; those that shared memory share it still."""
    if isinstance(value, torch.SymInt):
        return value.node.hint
    if not isinstance(value, torch.Tensor):
        return value
    shape, strides, (offset, size) = (
        _hints(value.shape),
        _hints(value.stride()),
        _hints((value.storage_offset(), value.untyped_storage().nbytes())),
    )
    traced = StorageWeakRef(value.untyped_storage())
    if traced not in storages:
        storages[traced] = torch.empty(size, dtype=torch.uint8, device=META).untyped_storage()
    return torch.empty(0, dtype=value.dtype, device=META).set_(storages[traced], offset, shape, strides)


def _hints(sizes: Sequence[Any]) -> list[int]:
    return [n.node.hint if isinstance(n, torch.SymInt) else n for n in sizes]


def step_peaks(module: ir.Module, library: Kernels | None = None) -> list[Peak | PeakUnknown]:
    """The peak of the program of a module of level 3 or 4, on rank 0; of a pipeline one for each of its ranks.

    Without the ``library`` of its kernels what they work in is not counted.
    """
    described, text = describe_program(module), emit_program(module)
    mesh, leaves = Mesh.read(described["mesh"]), [Leaf.read(entry) for entry in described["arguments"]]
    parts: dict[int, tuple[int, Part]] = {}
    for rank in range(mesh.world_size):
        part = part_of(described["pipeline"], leaves, mesh, rank)
        parts.setdefault(part.number, (rank, part))
    entry = "step_{}" if described["pipeline"] else "step"
    return [_rank_peak(text, entry.format(n), mesh, *parts[n], _workspace(library)) for n in sorted(parts)]


def step_peak(module: ir.Module, library: Kernels | None = None) -> Peak:
    """:func:`step_peaks` of a step that is no pipeline. Raises PeakUnknown."""
    (peak,) = step_peaks(module, library)
    if isinstance(peak, PeakUnknown):
        raise peak
    return peak


def _rank_peak(
    text: str, entry: str, mesh: Mesh, rank: int, part: Part, workspace: Workspace | None
) -> Peak | PeakUnknown:
    lasting: list[torch.Tensor] = []

    def arguments() -> list[Any]:
        shapes = ((leaf.local_shape(mesh), leaf.dtype) for leaf in part.arguments)
        lasting.extend(torch.empty(shape, dtype=dtype, device=META) for shape, dtype in shapes)
        return [Rank(mesh, rank, META, _AloneGroups(mesh, rank)), *lasting]  # type: ignore[arg-type]

    try:
        return dry_run(text, entry, arguments, workspace)
    except PeakUnknown as unknown:
        return unknown


def said_peak(module: ir.Module, library: Kernels | None = None) -> str:
    """:func:`step_peak` in a line."""
    try:
        return head(step_peak(module, library))
    except PeakUnknown as unknown:
        return f"what is not known: {unknown.fields['problem']}"


def explain_pipeline(module: ir.Module, library: Kernels | None = None) -> PipelineReport | None:
    """What each rank of a pipeline's program of level 3 or 4 holds, needs at most and sends; None of another."""
    if find_schedule(module) is None:
        return None
    peaks = step_peaks(module, library)
    return describe_pipeline(
        module, [None if isinstance(peak, PeakUnknown) else peak.size_bytes for peak in peaks]
    )


class _AloneGroups:
    """The groups of a rank whose collectives and messages send nothing."""

    def __init__(self, mesh: Mesh, rank: int) -> None:
        self._mesh, self._rank = mesh, rank

    def __getitem__(self, axes: Axes) -> Group:
        ranks = next(part for part in self._mesh.partition(axes) if self._rank in part)
        return _AloneGroup(ranks, None, place_of(ranks))


class _AloneGroup(Group):
    def _start(self, *_: Any) -> Any:
        return SimpleNamespace(wait=lambda: None)

    all_reduce = all_gather = reduce_scatter = all_to_all = broadcast = send = receive = _start


@dataclass(frozen=True)
class MemoryExplanation:
    """The peaks of the graphs of one function, with their phases; printed, they are its explanation."""

    graphs: Peaks

    def __str__(self) -> str:
        return (
            "\n\n".join(f"{phase}: {render(peak)}" for phase, peak in self.graphs) or "no graph was compiled"
        )


def explain_memory(
    function: Callable[..., Any], *args: Any, options: Mapping[str, Any] | None = None, **kwargs: Any
) -> MemoryExplanation:
    """What the graphs of ``torch.compile(function, backend="shardc", options=options)`` need at most, called like this.

    Compiles and calls ``function`` once. The backward graph is there if some result needs gradients.
    """
    from shardc.driver.dynamo import shardc_backend

    def backend(graph: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return shardc_backend(graph, example_inputs, options=options)

    inner = getattr(function, "_orig_mod", function)
    with (
        collect_fusion(),
        collect_peaks() as graphs,
        torch._functorch.config.patch(force_non_lazy_backward_lowering=True),
    ):
        torch.compile(inner, backend=backend, dynamic=False)(*args, **kwargs)
    return MemoryExplanation(graphs)


def render(peak: Peak | PeakUnknown) -> str:
    """A peak in words: how much, where, and the largest tensors that live then."""
    if isinstance(peak, PeakUnknown):
        return str(peak)
    rows = [
        (size_text(size), line.partition(" = ")[0] if line else "(given)", shown_call(line))
        for size, line in peak.held
    ]
    return "\n".join([head(peak), "the largest of them: bytes, name, call", *table(rows, right=(0,))])


def head(peak: Peak) -> str:
    """How much, and where."""
    sizes = f"at most {size_text(peak.size_bytes)} of tensors at once, with {size_text(peak.given_bytes)} that it is given"
    return f"{sizes}: in {place(peak)}"


def place(peak: Peak) -> str:
    """The call where a peak is reached, with the user's line."""
    call = shown_call(peak.line) or "the start"
    return f"{call} ({peak.where})" if peak.where else call


def shown_call(line: str) -> str:
    """``add_gelu_0`` for ``add_gelu, = add_gelu_0(x, bias)``."""
    return line.rpartition(" = ")[2].partition("(")[0] if " = " in line else line.partition("(")[0]
