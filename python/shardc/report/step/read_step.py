"""Work of a level 3 program for the cost model: matmuls, passes over memory, collectives."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch_mlir import ir

from shardc.cost.step.work import Item, Section, StageWork, StepWork, action_key
from shardc.dialects.aten.call import CallReader
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.axis import shared_axis
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.dist.tuples import element_types
from shardc.dialects.pipe.kept import read_kept
from shardc.dialects.pipe.rank_function import rank_functions
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.dialects.pipe.stage import StageOp
from shardc.passes.manager.program import find_function
from shardc.report.step.block_items import BlockItems

_FORWARD = re.compile(r"(\d+)F(\d+)")
"""Tag of a message to a forward: its stage and micro-batch."""


def read_step(module: ir.Module) -> StepWork:
    """Return the work of one rank, or of each distinct rank of a pipeline or an axis with unequal shares."""
    mesh = read_mesh(module) or Mesh(())
    codec = ShardingCodec(module.context, mesh)
    functions = rank_functions(module)
    if not functions:
        function = find_function(module)
        body = None if function is None else _body(function)
        codecs = [ShardingCodec(module.context, seen) for seen in mesh.by_place()]
        shared = next((shared_axis(name) for name in mesh.shares), "")
        return StepWork((), () if body is None else tuple(_sections(body, c) for c in codecs), shared)
    kept = {stage: float(found.size_bytes) for stage, found in enumerate(read_kept(module))}
    stages = read_stages(module, _sent_bytes(module, functions), kept)
    return StepWork(stages, tuple(_sections(_body(function), codec) for function in functions))


def read_stages(
    module: ir.Module, sent: Mapping[int, float], kept: Mapping[int, float] = {}
) -> tuple[StageWork, ...]:
    """Return the work of each ``pipe.stage``. ``sent``: bytes that a stage sends on for each micro-batch.

    ``kept``: bytes that it keeps for backward.
    """
    codec = ShardingCodec(module.context, read_mesh(module) or Mesh(()))
    bodies: dict[int, dict[str, tuple[Item, ...]]] = {}
    for op in (op.operation for op in module.body.operations):
        if op.name == StageOp.OPERATION_NAME:
            index, kind = op.attributes["index"].value, op.attributes["kind"].value
            number = op.attributes["slice"].value if "slice" in op.attributes else 0
            bodies.setdefault(index, {})[action_key(kind, number)] = _items(_body(op), codec)
    return tuple(
        StageWork(bodies[index], sent.get(index, 0.0), kept.get(index, 0.0)) for index in sorted(bodies)
    )


def _body(op: ir.Operation) -> ir.Block:
    return op.regions[0].blocks[0]


def _items(block: ir.Block, codec: ShardingCodec) -> tuple[Item, ...]:
    """Return the items of a block, each once."""
    return tuple(item for section in _sections(block, codec) for item in section.items)


def _sections(block: ir.Block, codec: ShardingCodec) -> tuple[Section, ...]:
    """Return sections: the items between a block's loops, and those of its loops with their trip counts."""
    reader, found = CallReader(), []
    part = BlockItems(reader, codec)
    for op in (op.operation for op in block.operations):
        if op.name not in ("dist.loop", "dist.manual"):
            part.add(op)
            continue
        part.read_outside(op)
        times = _turns(op, codec)
        found.append(Section(part.items()))
        found += [Section(s.items, s.times * times) for s in _sections(_body(op), codec)]
        part = BlockItems(reader, codec)
    found.append(Section(part.items()))
    return tuple(section for section in found if section.items)


def _turns(op: ir.Operation, codec: ShardingCodec) -> int:
    if op.name != "dist.loop":
        return 1
    return codec.mesh.turns(codec.read_axes(ir.ArrayAttr.get([op.attributes["axis"]], op.context))[0])


def _sent_bytes(module: ir.Module, functions: list[ir.Operation]) -> dict[int, float]:
    """Return stage -> bytes that the first micro-batch's forward, with all slices, sends to another rank.

    If several stages read it, the largest message counts.
    """
    op = find_schedule(module)
    assert op is not None, "a pipeline has a schedule"
    schedule, hops = read_schedule(op), dict[tuple[int, int], float]()
    for rank, function in enumerate(functions):
        for op in (op.operation for op in _body(function).operations):
            read_by = _FORWARD.fullmatch(op.attributes["tag"].value) if op.name == "pipe.send" else None
            if read_by is not None and int(read_by[2]) < schedule.slices:
                types = (read_type(type_) for type_ in element_types(op.operands[0].type) or [])
                sent = sum(type_.size_bytes for type_ in types if type_ is not None)
                reader = int(read_by[1])
                known = schedule.reads[reader] if schedule.reads else (reader - 1,)
                sender = next(stage for stage in known if schedule.rank_of.get(stage) == rank)
                hops[sender, reader] = hops.get((sender, reader), 0.0) + sent
    found: dict[int, float] = {}
    for (sender, _), sent in hops.items():
        found[sender] = max(found.get(sender, 0.0), sent)
    return found
