"""Work of a device in a step, by phase, compared with the single-device program; and repeated work.

Floating-point operations are those of matmuls, convolutions and attention. Bytes are what calls read and
write, each tensor once, before fusion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from torch_mlir import ir

from shardc.cost.work import flops, moved_bytes
from shardc.diagnostics.base import Remark
from shardc.diagnostics.text import table
from shardc.dialects.aten.call import CallReader, is_constant
from shardc.dialects.dist.axis import shared_axis
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.location import source_line
from shardc.passes.manager.program import find_function
from shardc.report.source_lines import shown
from shardc.runtime.report.messages import is_silenced

PHASES = ("forward", "recompute", "backward", "optimizer")
SMALLEST_PART = 0.01
"""Least part of a step's operations for a remark. Smaller repeated work appears only in the table."""


@dataclass(frozen=True)
class Work:
    """One call of a step: its floating-point operations and bytes, over all iterations of its loops.

    ``axes``: mesh axes that shard its result, or over which the result is partial. None before a plan.
    """

    phase: str
    where: str | None
    flops: float
    bytes_moved: float
    axes: frozenset[str] | None


@dataclass(frozen=True)
class DeviceWork:
    """Work of one of several devices (``own``), and of the single-device program (``single``).

    ``space``: mesh axis -> size, without the axis of pipeline stages.
    """

    own: list[Work]
    single: list[Work]
    space: Mapping[str, int] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Device's part of the single-device program's operations, or of its bytes if it has none."""
        total = sum(w.flops for w in self.single)
        if total:
            return sum(w.flops for w in self.own) / total
        return sum(w.bytes_moved for w in self.own) / max(sum(w.bytes_moved for w in self.single), 1.0)

    def render(self) -> list[str]:
        """Return the lines of a report; none for one device."""
        devices = prod(self.space.values())
        if devices == 1 or not self.single:
            return []
        rows = [("", "FLOP", "of single", "bytes", "of single")]
        for phase in (*PHASES, "total"):
            own, single = _sums(self.own, phase), _sums(self.single, phase)
            if any(single) or any(own):
                parts = [_part(a, b) for a, b in zip(own, single, strict=True)]
                rows.append((phase, _count(own[0]), parts[0], _count(own[1]), parts[1]))
        title = f"work of a device, compared with a single device alone (evenly divided: {1 / devices:.3f})"
        return [title, *table(rows, right=(1, 2, 3, 4))]

    def remarks(self) -> Iterator[Remark]:
        """Yield a remark for each set of axes along which devices repeat work, with its largest line."""
        total = sum(w.flops for w in self.single)
        repeated: dict[tuple[str, ...], list[Work]] = {}
        for work in self.own:
            idle = tuple(a for a, n in self.space.items() if n > 1 and a not in (work.axes or ()))
            if idle and work.flops:
                repeated.setdefault(idle, []).append(work)
        for axes, works in repeated.items():
            # Part of the step's work, summed over the devices along the other axes.
            ways = prod(n for a, n in self.space.items() if a not in axes)
            part = ways * sum(w.flops for w in works) / total
            if part >= SMALLEST_PART and not is_silenced("WorkRepeated"):
                by_line: dict[str | None, float] = {}
                for work in works:
                    by_line[work.where] = by_line.get(work.where, 0.0) + work.flops
                yield _remark(axes, prod(self.space[a] for a in axes), part, by_line)


def device_work(single: ir.Module | list[Work], rank: ir.Module, pipeline: str = "") -> DeviceWork:
    """Return the work of a program at level 3, before it is cut into stages.

    ``single``: level 1, or its :func:`single_work`. ``pipeline``: the axis of stages, if any.
    """
    mesh = read_mesh(rank)
    space = {a.name: a.size for a in mesh.space if a.name != pipeline} if mesh is not None else {}
    alone = single if isinstance(single, list) else single_work(single)
    return DeviceWork(list(_works(rank, mesh)), alone, space)


def single_work(module: ir.Module) -> list[Work]:
    """Return the calls of a level 1 program."""
    return list(_works(module, None))


def _works(module: ir.Module, mesh: Mesh | None) -> Iterator[Work]:
    function = find_function(module)
    if function is not None:
        codec = None if mesh is None else ShardingCodec(module.context, mesh)
        yield from _walk(function.regions[0].blocks[0], CallReader(), codec, 1)


def _walk(block: ir.Block, reader: CallReader, codec: ShardingCodec | None, times: int) -> Iterator[Work]:
    waiting: list[ir.Operation] = []
    for op in (view.operation for view in block.operations):
        if op.name == "dist.loop" and codec is not None:
            (axis,) = codec.read_axes(ir.ArrayAttr.get([op.attributes["axis"]], op.context))
            yield from _walk(op.regions[0].blocks[0], reader, codec, times * codec.mesh.turns(axis))
        elif _is_call(op):
            waiting.append(op)
            # Ops that a rule's local version adds precede the op with the call's layouts.
            if codec is None or "dist.shardings" in op.attributes:
                for part in waiting:
                    same = part.location == op.location
                    yield _work(part, op if same else part, reader, codec, times)
                waiting = []
    yield from (_work(op, op, reader, codec, times) for op in waiting)


def _work(
    op: ir.Operation, said: ir.Operation, reader: CallReader, codec: ShardingCodec | None, times: int
) -> Work:
    """Return the work of a call ``op``. The op ``said`` has its phase and axes."""
    call = reader.read(op).spec
    phase = said.attributes["dist.phase"].value if "dist.phase" in said.attributes else "forward"
    axes = None if codec is None else _axes(said, codec)
    return Work(phase, source_line(op.location), times * flops(call), times * moved_bytes(call), axes)


def _is_call(op: ir.Operation) -> bool:
    return op.name.startswith("torch.") and not op.name.startswith("torch.prim.") and not is_constant(op)


def _axes(op: ir.Operation, codec: ShardingCodec) -> frozenset[str]:
    if "dist.shardings" not in op.attributes:
        return frozenset()
    used = (axis for said in op.attributes["dist.shardings"] for axis in codec.read(said).used)
    return frozenset(shared_axis(axis.name) for axis in used)


def _sums(works: list[Work], phase: str) -> tuple[float, float]:
    found = [w for w in works if phase in (w.phase, "total")]
    return sum(w.flops for w in found), sum(w.bytes_moved for w in found)


def _part(own: float, single: float) -> str:
    return f"{own / single:.3f}" if single else ""


def _count(number: float) -> str:
    return f"{number:.3g}" if number else ""


def _remark(axes: tuple[str, ...], ways: int, part: float, by_line: Mapping[str | None, float]) -> Remark:
    where = max(by_line, key=lambda line: by_line[line])
    names = " and ".join(axes)
    lines = f"{len(by_line)} line{'s' * (len(by_line) > 1)}"
    what = (
        f"{part:.0%} of the step's floating-point operations, of {lines}, are not cut along {names}: each of "
        f"{ways} devices does them all"
    )
    return Remark("WorkRepeated", what, shown(where) if where else None)
