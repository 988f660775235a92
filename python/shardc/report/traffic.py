"""Traffic of a rank program: each collective with its place, and the bytes that each device sends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from torch_mlir import ir

from shardc.cost.collective import sent_bytes
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.dist.collectives.names import COLLECTIVES
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.location import source_line
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import find_function
from shardc.report.moved_text import moved_text, updated_text

UPDATE = "update"
"""Name in reports of the phase after the optimizer."""


@dataclass(frozen=True)
class Transfer:
    """Collective of a step.

    ``type``: the operand's local type. ``axes``: mesh axes that it spans. ``ways``: size of its groups.
    ``times``: how often it runs in a step, with each iteration of a loop counted. ``bytes_moved``: bytes that
    each device sends in all these runs. ``phase`` is empty for moves of new state at the end of
    a step (``UPDATE`` in reports). ``what``: names of the tensors; only :func:`named_transfers` fills it in.
    """

    kind: str
    type: TensorType
    axes: tuple[str, ...]
    ways: int
    phase: str
    where: str | None
    times: int
    bytes_moved: float
    what: str = ""


def transfers(module: ir.Module) -> list[Transfer]:
    """Return the collectives of a level-3 module, in program order."""
    return [transfer for transfer, *_ in _transfers(module)]


def named_transfers(module: ir.Module) -> list[Transfer]:
    """Return the same collectives, each with the names of the tensors that it moves."""
    function = find_function(module)
    return [
        replace(transfer, what="" if function is None else _moved(operand, op, function))
        for transfer, operand, op in _transfers(module)
    ]


def _moved(operand: ir.Value, op: ir.Operation, function: ir.Operation) -> str:
    """Return the names of what a collective moves. With several operands, its results do not tell which."""
    updated = updated_text(op.results, function) if len(op.operands) == 1 else ""
    return moved_text(operand, function) or updated


def _transfers(module: ir.Module) -> Iterator[tuple[Transfer, ir.Value, ir.Operation]]:
    """Yield each collective with its operand and its op."""
    mesh, function = read_mesh(module), find_function(module)
    if mesh is not None and function is not None:
        codec = ShardingCodec(module.context, mesh)
        yield from _walk(function.regions[0].blocks[0], mesh, codec, 1)


def _walk(
    block: ir.Block, mesh: Mesh, codec: ShardingCodec, times: int
) -> Iterator[tuple[Transfer, ir.Value, ir.Operation]]:
    for op in block.operations:
        op = op.operation
        if op.name in COLLECTIVES:
            yield from _read(op, mesh, codec, times)
        elif op.name in ("dist.loop", "dist.manual"):
            trips = times
            if op.name == "dist.loop":
                (axis,) = codec.read_axes(ir.ArrayAttr.get([op.attributes["axis"]], op.context))
                trips *= mesh.turns(axis)
            yield from _walk(op.regions[0].blocks[0], mesh, codec, trips)


def _read(
    op: ir.Operation, mesh: Mesh, codec: ShardingCodec, times: int
) -> Iterator[tuple[Transfer, ir.Value, ir.Operation]]:
    axes = _axes(op, codec)
    ways = prod(a.size for a in axes)
    phase = collective_phase(op)
    for operand in op.operands:
        type_ = read_type(operand.type)
        if type_ is None:
            continue
        kind, names = op.name.removeprefix("dist."), tuple(dict.fromkeys(a.name for a in axes))
        moved = sent_bytes(kind, ways, type_.size_bytes) * times
        where = source_line(op.location)
        yield Transfer(kind, type_, names, ways, phase, where, times, moved), operand, op


def collective_phase(op: ir.Operation) -> str:
    """Return a collective's phase; if it has none, that of the first call that reads its result.

    In the second case the optimizer's phase does not count, and the text is empty.
    """
    own = phase_of(op)
    while not (phase := phase_of(op)) and op.results and (use := next(iter(op.results[0].uses), None)):
        op = use.owner.operation
    return own or (phase if phase != "optimizer" else "")


def _axes(op: ir.Operation, codec: ShardingCodec) -> Axes:
    if "axes" in op.attributes:
        return codec.read_axes(op.attributes["axes"])
    source, target = (codec.read(op.attributes[name]) for name in ("source", "target"))
    return tuple(sorted({*source.used, *target.used}))


Totals = dict[tuple[str, tuple[str, ...], str], tuple[int, float]]


def totals(found: list[Transfer]) -> Totals:
    """Return (count, bytes per device) by phase, axes and kind. Each iteration of a loop counts."""
    sums: Totals = {}
    for t in found:
        key = (t.phase, t.axes, t.kind)
        count, moved = sums.get(key, (0, 0.0))
        sums[key] = (count + t.times, moved + t.bytes_moved)
    return sums
