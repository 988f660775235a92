"""Peak memory of tensors in a graph of ``torch.compile`` or in a rank's step."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import GraphModule
from torch.multiprocessing.reductions import StorageWeakRef
from torch_mlir import ir

from shardc.backends.torch.description import describe_program
from shardc.backends.torch.emit import emit_program
from shardc.backends.torch.memory.dry_run import META, Peak, Workspace, dry_run
from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.frontend.importing.recorder import FORWARD
from shardc.frontend.nodes import placeholders
from shardc.runtime.check import Json
from shardc.runtime.comm.collectives import Rank
from shardc.runtime.comm.groups import Group, Groups, place_of
from shardc.runtime.comm.layout import Leaf
from shardc.runtime.comm.mesh import Axes, Mesh
from shardc.runtime.kernels.loaders import Kernels
from shardc.runtime.program import Part, part_of


def graph_peak(
    phase: str, text: str, graph: GraphModule, constants: Sequence[torch.Tensor], library: Kernels | None
) -> Peak:
    """Return the peak of a graph's program ``text`` with its kernels, at the sizes of the traced call.

    A forward's arguments and a backward's parameters stay alive throughout. Tensors that a forward saved are
    freed after their last use. Raises PeakUnknown.
    """
    nodes = placeholders(graph.graph)
    kept = [phase == FORWARD or node.name.startswith("primals") for node in nodes] + [True] * len(constants)
    lasting: list[object] = []

    def arguments() -> list[object]:
        storages: dict[StorageWeakRef, torch.UntypedStorage] = {}
        given = [*(node.meta.get("val") for node in nodes), *constants]
        values = [_without_data(value, storages) for value in given]
        lasting.extend(value for value, stays in zip(values, kept, strict=True) if stays)
        return [SimpleNamespace(device=META), values]

    return dry_run(text, "graph", arguments, None if library is None else library.workspace_bytes)


def _without_data(value: object, storages: dict[StorageWeakRef, torch.UntypedStorage]) -> object:
    """Return a traced input on the meta device. Inputs that share memory still do."""
    if isinstance(value, torch.SymInt):
        return value.node.hint
    if not isinstance(value, torch.Tensor):
        return value
    shape, strides = _hints(value.shape), _hints(value.stride())
    offset, size = _hints((value.storage_offset(), value.untyped_storage().nbytes()))
    traced = StorageWeakRef(value.untyped_storage())
    if traced not in storages:
        storages[traced] = torch.empty(size, dtype=torch.uint8, device=META).untyped_storage()
    return torch.empty(0, dtype=value.dtype, device=META).set_(storages[traced], offset, shape, strides)


def _hints(sizes: Sequence[int | torch.SymInt]) -> list[int]:
    return [n.node.hint if isinstance(n, torch.SymInt) else n for n in sizes]


def step_peaks(
    module: ir.Module, library: Kernels | None = None, in_calls: bool = False
) -> list[Peak | PeakUnknown]:
    """Return rank 0's peak for a module of level 3 or 4; for a pipeline, one peak for each stage's rank.

    Without the ``library`` of its kernels their workspaces are not counted. ``in_calls``: also count memory
    that some ATen calls allocate inside on a CPU.
    """
    described, text = describe_program(module), emit_program(module)
    mesh, parts = distinct_parts(described)
    entry = "step_{}" if described["pipeline"] else "step"
    workspace = None if library is None else library.workspace_bytes
    return [_rank_peak(text, entry.format(n), mesh, *parts[n], workspace, in_calls) for n in sorted(parts)]


def distinct_parts(described: Json) -> tuple[Mesh, dict[int, tuple[int, Part]]]:
    """Return a described program's mesh, and its parts by function number, each with its first rank."""
    mesh, leaves = Mesh.read(described["mesh"]), [Leaf.read(entry) for entry in described["arguments"]]
    stages = [(entry["name"], 1, dict(mesh.space)[entry["name"]]) for entry in described["pipeline"]]
    found = [(rank, part_of(described["pipeline"], leaves, mesh, rank)) for rank in mesh.peers(0, (*stages,))]
    return mesh, {part.number: (rank, part) for rank, part in found}


def step_peak(module: ir.Module, library: Kernels | None = None, in_calls: bool = False) -> Peak:
    """Return the peak of a step that is no pipeline (see :func:`step_peaks`). Raises PeakUnknown."""
    (peak,) = step_peaks(module, library, in_calls)
    if isinstance(peak, PeakUnknown):
        raise peak
    return peak


def _rank_peak(
    text: str,
    entry: str,
    mesh: Mesh,
    rank: int,
    part: Part,
    workspace: Workspace | None,
    in_calls: bool,
) -> Peak | PeakUnknown:
    lasting: list[torch.Tensor] = []

    def arguments() -> list[object]:
        shapes = ((leaf.local_shape(mesh), leaf.dtype) for leaf in part.arguments)
        lasting.extend(torch.empty(shape, dtype=dtype, device=META) for shape, dtype in shapes)
        return [Rank(mesh, rank, META, AloneGroups(mesh, rank)), *lasting]

    try:
        return dry_run(text, entry, arguments, workspace, in_calls=in_calls)
    except PeakUnknown as unknown:
        return unknown


class AloneGroups(Groups):
    """Process groups of one simulated rank, whose collectives and messages send nothing."""

    def __init__(self, mesh: Mesh, rank: int) -> None:
        self._mesh, self._rank = mesh, rank

    def __getitem__(self, axes: Axes) -> Group:
        ranks = self._mesh.peers(self._rank, axes)
        return _AloneGroup(ranks, None, place_of(ranks))


class _AloneGroup(Group):
    def _start(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(wait=lambda: None)

    all_reduce = all_gather = reduce_scatter = all_to_all = broadcast = send = receive = _start
