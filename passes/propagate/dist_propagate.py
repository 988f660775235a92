"""``dist-propagate``: from shardings on a few arguments to one on every value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.dialects.location import source_line
from shardc.passes.manager.program import Program
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.plan.refinement import Refinement, read_refinements
from shardc.passes.propagate.state import PropagationState


@dataclass(frozen=True)
class DistPropagate(ReadingPass):
    """Spreads shardings from annotated arguments and constraints through the function, both ways, to a fixed
    point.

    Round 0 starts from every ``dist.sharding``; arguments without one are open and take what reaches them.
    Then arguments are closed, and the ``dist.refine`` annotations are applied round by round: what an earlier
    round gave is never taken back, so a refinement (ZeRO's cut of the state, the sequence dim) yields
    wherever it is in the way. Leaves ``dist.sharding`` on arguments and ``dist.shardings`` on every op: what
    each value should be.
    """

    name: ClassVar[str] = "dist-propagate"
    provenance: bool = False
    """Also say on every op where its sharding came from (``dist.origin``)."""

    def apply(self, reading: Reading) -> bool:
        mesh, program = reading.sharded(level=1)
        codec = ShardingCodec(reading.module.context, mesh)
        state = propagate(program, codec, mesh)
        write_shardings(program, state, codec)
        if self.provenance:
            write_origins(program, state)
        return False


def propagate(program: Program, codec: ShardingCodec, mesh: Mesh) -> PropagationState:
    """The fixed point of a program's annotations."""
    state = PropagationState(program)
    start = annotate(program, state, codec)
    state.run(start)
    refinements = read_refinements(program)
    if refinements:
        close_arguments(program, state)
    for priority in sorted({r.priority for r in refinements}):
        chosen = [r for r in refinements if r.priority == priority]
        changed = [v for r in chosen if (v := _refine(program, state, mesh, r)) is not None]
        state.run(changed, priority)
    return state


def annotate(program: Program, state: PropagationState, codec: ShardingCodec) -> list[int]:
    """Take over the annotations of arguments and constraints; the values that have one."""
    found = []
    for position, value in enumerate(program.arguments):
        attribute = program.attribute(position, "dist.sharding")
        if attribute is not None:
            state.set(value, codec.read(attribute))
            found.append(value)
    for node in program.nodes:
        if node.op.name == "dist.constraint":
            state.set(node.results[0], codec.read(node.op.attributes["sharding"]))
            found.append(node.results[0])
    return found


def close_arguments(program: Program, state: PropagationState) -> None:
    for value in program.arguments:
        state.set(value, state.sharding(value).closed())


def _refine(program: Program, state: PropagationState, mesh: Mesh, refinement: Refinement) -> int | None:
    """Cut a value further; None if no dim of it can take the axis."""
    sharding = state.sharding(refinement.value)
    axis = mesh.whole(refinement.axis)
    if any(axis.overlaps(used) for used in sharding.used):
        return None
    shape = program.types[refinement.value].shape
    wanted = range(len(shape)) if refinement.dim < 0 else [refinement.dim]
    for dim in wanted:
        if shape[dim] % (sharding.ways(dim) * axis.size) == 0 and shape[dim] > 0:
            dims = tuple((*d, axis) if i == dim else d for i, d in enumerate(sharding.dims))
            state.set(refinement.value, Sharding(dims, sharding.partial, sharding.open), refinement.priority)
            return refinement.value
    return None


def write_shardings(program: Program, state: PropagationState, codec: ShardingCodec) -> None:
    """Put the state into the IR."""
    arrays: dict[tuple[Sharding, ...], ir.ArrayAttr] = {}
    priorities = _priorities(state, program.producer, program.module.context)
    for number, node in enumerate(program.nodes):
        shardings = tuple(state.sharding(v).closed() for v in node.results)
        array = arrays.get(shardings)
        if array is None:
            array = arrays[shardings] = codec.array(list(shardings))
        node.op.attributes["dist.shardings"] = array
        if number in priorities:
            node.op.attributes["dist.priorities"] = priorities[number]
    _write_edges(program, state, codec)


def _priorities(
    state: PropagationState, owner: Sequence[int], context: ir.Context
) -> dict[int, ir.Attribute]:
    """Owners of values that took axes after round 0: which axes, and in which round. ``owner[v]`` is value
    v's.
    """
    rounds: dict[int, dict[str, int]] = {}
    for (value, axis), priority in state.priority.items():
        rounds.setdefault(owner[value], {})[axis] = priority
    i64 = ir.IntegerType.get_signless(64, context)
    return {
        number: ir.DictAttr.get({axis: ir.IntegerAttr.get(i64, p) for axis, p in axes.items()}, context)
        for number, axes in rounds.items()
    }


def _write_edges(program: Program, state: PropagationState, codec: ShardingCodec) -> None:
    context = program.module.context
    priorities = _priorities(state, range(len(program.values)), context)
    arguments = []
    for position, value in enumerate(program.arguments):
        attributes = _attributes(program.function, "arg_attrs", position)
        attributes["dist.sharding"] = codec.write(state.sharding(value).closed())
        if "dist.why" not in attributes and not state.sharding(value).is_replicated:
            origin = describe_origin(program, state, value)
            why = "annotated" if origin == "self" else f"from {origin}"
            attributes["dist.why"] = ir.StringAttr.get(why, context)
        if value in priorities:
            attributes["dist.priorities"] = priorities[value]
        arguments.append(ir.DictAttr.get(attributes, context))
    program.function.attributes["arg_attrs"] = ir.ArrayAttr.get(arguments, context)


def _attributes(function: ir.Operation, which: str, position: int) -> dict[str, ir.Attribute]:
    if which not in function.attributes:
        return {}
    found = ir.DictAttr(function.attributes[which][position])
    return {named.name: named.attr for named in found}


def write_origins(program: Program, state: PropagationState) -> None:
    """Where each value's sharding came from: the op that it arrived through, or the annotation itself."""
    context = program.module.context
    for node in program.nodes:
        texts = [ir.StringAttr.get(describe_origin(program, state, v), context) for v in node.results]
        node.op.attributes["dist.origin"] = ir.ArrayAttr.get(texts, context)


def describe_origin(program: Program, state: PropagationState, value: int) -> str:
    """``self`` for an annotated value, ``none`` for one that nothing reached, else the op through which it
    came.
    """
    node = state.origin[value]
    if node >= 0:
        op = program.nodes[node].op
        line = source_line(op.location)
        return f"{program.nodes[node].spec.target}" + (f" at {line}" if line else "")
    return "none" if state.sharding(value).is_replicated else "self"
