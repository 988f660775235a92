"""``dist-constrain``: turns ``shardc.constrain`` of activations into ``dist.constraint``."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.dist.constraint import constraint
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import OPEN, Sharding, ShardingCodec
from shardc.dialects.location import source_line
from shardc.passes.manager.attributes import copy_attributes
from shardc.passes.manager.program import Node, Program
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.plan.plan import Argument
from shardc.passes.plan.plan_check import dims_problem
from shardc.passes.propagate.state import PropagationState

OPERATOR = "shardc.constrain"


@dataclass(frozen=True)
class DistConstrain(ReadingPass):
    """Replaces calls of ``shardc::constrain`` by ``dist.constraint``, with the axes that the calls name.

    A user names only space axes. Time axes are added to the dims that they split when propagated from the
    arguments. Raises UnknownAxis, AxisUsedTwice and TooManyWays, with the user's line.
    """

    name: ClassVar[str] = "dist-constrain"

    def apply(self, reading: Reading) -> bool:
        mesh, program = reading.sharded(level=1)
        found = [node for node in program.nodes if node.spec.target == OPERATOR]
        if not found:
            return False
        codec = ShardingCodec(reading.module.context, mesh)
        times = _times(program, codec, mesh)
        for node in found:
            op = node.op
            sharding = _joined(_wanted(node, program, mesh), times.get(node.results[0]))
            made = constraint(op.operands[0], sharding, codec, loc=op.location, ip=ir.InsertionPoint(op))
            copy_attributes(op, made.owner, "dist.phase")
            op.results[0].replace_all_uses_with(made)
            op.erase()
        return True


def _wanted(node: Node, program: Program, mesh: Mesh) -> Sharding:
    """Return the sharding that the user asks for; only ``"?"`` dims are open. Raises the errors of the
    pass.
    """
    shape, where = program.types[node.results[0]].shape, source_line(node.op.location)
    given: list[list[str]] = json.loads(node.spec["layout"])
    given += [[] for _ in shape[len(given) :]]
    dims = tuple(tuple(axis for axis in axes if axis != OPEN) for axes in given)
    if problem := dims_problem(Argument("activation", "an activation", shape), dims, mesh, given):
        raise type(problem)(where=where, **problem.fields)
    cut = tuple(tuple(mesh.whole(axis) for axis in axes) for axes in dims)
    return Sharding(cut, (), tuple(OPEN in axes for axes in given))


def _times(program: Program, codec: ShardingCodec, mesh: Mesh) -> dict[int, Sharding]:
    """Return the time axes of each value, by propagating only time axes; empty if the mesh has none."""
    if len(mesh.space) == len(mesh.axes):
        return {}
    state, given = PropagationState(program), []
    for position, value in enumerate(program.arguments):
        attribute = program.attribute(position, "dist.sharding")
        dims = () if attribute is None else codec.read(attribute).dims
        times = tuple(tuple(axis for axis in dim if mesh.is_time(axis)) for dim in dims)
        if any(times):
            state.set(value, Sharding(times, (), (True,) * len(times)))
            given.append(value)
    state.run(given)
    return {value: state.sharding(value) for value in range(len(program.types))}


def _joined(wanted: Sharding, times: Sharding | None) -> Sharding:
    if times is None:
        return wanted
    return replace(wanted, dims=tuple((*a, *b) for a, b in zip(wanted.dims, times.dims, strict=True)))
