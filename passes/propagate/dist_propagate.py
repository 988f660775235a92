"""``dist-propagate``: derives a sharding for every value from the annotations of a few arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.passes.manager.attributes import edge_attributes, i64, set_edge_attributes
from shardc.passes.manager.program import Program
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.propagate.origins import origin_of, origins_of_axes
from shardc.passes.propagate.refinement import Refinement, read_refinements
from shardc.passes.propagate.state import PropagationState


@dataclass(frozen=True)
class DistPropagate(ReadingPass):
    """Spreads shardings from annotated arguments and constraints, forward and backward, to a fixed point.

    Round 0 starts from every ``dist.sharding``, then applies the ``dist.refine`` entries of round 0. In it,
    arguments without an annotation are open. Then arguments are closed, and later ``dist.refine`` entries are
    applied round by round. A later round never overrides shardings from earlier rounds, so refinements
    (ZeRO's split of the state, the sequence dim) never displace annotations. Writes ``dist.sharding`` of
    arguments and ``dist.shardings`` of ops: the shardings that values should have.
    """

    name: ClassVar[str] = "dist-propagate"
    provenance: bool = False
    """Also write the origin of each sharding to the op (``dist.origin``)."""

    def apply(self, reading: Reading) -> bool:
        mesh, program = reading.sharded(level=1)
        codec = ShardingCodec(reading.module.context, mesh)
        state = propagate(program, codec, mesh)
        write_shardings(program, state, codec)
        if self.provenance:
            _write_origins(program, state)
        return False


def propagate(program: Program, codec: ShardingCodec, mesh: Mesh) -> PropagationState:
    """Propagate a program's annotations, round by round, and return the final state."""
    state = PropagationState(program)
    state.run(_annotate(program, state, codec))
    refinements = read_refinements(program)
    state.run([r.value for r in refinements if r.priority == 0 and _refine(program, state, mesh, r)])
    if refinements:
        for value in program.arguments:
            state.set(value, state.sharding(value).closed())
    for priority in sorted({r.priority for r in refinements} - {0}):
        chosen = [r for r in refinements if r.priority == priority]
        state.run([r.value for r in chosen if _refine(program, state, mesh, r)], priority)
    return state


def _annotate(program: Program, state: PropagationState, codec: ShardingCodec) -> list[int]:
    """Read the annotations of arguments and constraints. Return the annotated values."""
    given = [(v, program.attribute(i, "dist.sharding")) for i, v in enumerate(program.arguments)]
    constraints = [n for n in program.nodes if n.op.name == "dist.constraint"]
    given += [(n.results[0], n.op.attributes["sharding"]) for n in constraints]
    annotated = {value: attribute for value, attribute in given if attribute is not None}
    for value, attribute in annotated.items():
        state.set(value, codec.read(attribute))
    return list(annotated)


def _refine(program: Program, state: PropagationState, mesh: Mesh, refinement: Refinement) -> bool:
    """Apply a refinement. Return whether a dim of the value could take the axis.

    In round 0 a split over a part of the axis gives way to one over all of it.
    """
    axis = mesh.whole(refinement.axis)
    shape, sharding = program.types[refinement.value].shape, state.sharding(refinement.value)
    if refinement.priority == 0 and prod(a.size for a in sharding.used if a.name == axis.name) < axis.size:
        sharding = sharding.without(axis.name)
    if any(axis.overlaps(used) for used in sharding.used):
        return False
    for dim in range(len(shape)) if refinement.dim < 0 else [refinement.dim]:
        if shape[dim] % (sharding.ways(dim) * axis.size) == 0 and shape[dim] > 0:
            dims = tuple((*d, axis) if i == dim else d for i, d in enumerate(sharding.dims))
            state.set(refinement.value, Sharding(dims, sharding.partial, sharding.open), refinement.priority)
            return True
    return False


def write_shardings(program: Program, state: PropagationState, codec: ShardingCodec) -> None:
    """Write the state to the IR: ``dist.sharding`` of arguments, ``dist.shardings`` of ops."""
    arrays: dict[tuple[Sharding, ...], ir.ArrayAttr] = {}
    priorities = _priorities(state, program.producer, program.module.context)
    for number, node in enumerate(program.nodes):
        shardings = tuple(state.sharding(v).closed() for v in node.results)
        if shardings not in arrays:
            arrays[shardings] = codec.array(list(shardings))
        node.op.attributes["dist.shardings"] = arrays[shardings]
        if number in priorities:
            node.op.attributes["dist.priorities"] = priorities[number]
    _write_arguments(program, state, codec)


def _priorities(
    state: PropagationState, owner: Sequence[int], context: ir.Context
) -> dict[int, ir.Attribute]:
    """Return the axes that values got after round 0, with their rounds, by ``owner[value]``."""
    rounds: dict[int, dict[str, ir.Attribute]] = {}
    for (value, axis), priority in state.priority.items():
        rounds.setdefault(owner[value], {})[axis] = i64(priority, context)
    return {number: ir.DictAttr.get(axes, context) for number, axes in rounds.items()}


def _write_arguments(program: Program, state: PropagationState, codec: ShardingCodec) -> None:
    context, rows = program.module.context, []
    priorities = _priorities(state, range(len(program.values)), context)
    for position, value in enumerate(program.arguments):
        row = edge_attributes(program.function, "arg_attrs", position)
        row["dist.sharding"] = codec.write(state.sharding(value).closed())
        if "dist.why" not in row and not state.sharding(value).is_replicated:
            origin = origin_of(program, state, value)
            why = "annotated" if origin == "self" else origin
            row["dist.why"] = ir.StringAttr.get(why, context)
        elif "dist.why" in row and (origins := origins_of_axes(program, state, value)):
            parts = (ir.StringAttr(row["dist.why"]).value, *origins)
            row["dist.why"] = ir.StringAttr.get("; ".join(parts), context)
        if value in priorities:
            row["dist.priorities"] = priorities[value]
        rows.append(row)
    set_edge_attributes(program.function, "arg_attrs", rows)


def _write_origins(program: Program, state: PropagationState) -> None:
    """Write the origin of each value's sharding to the op that produces the value."""
    context = program.module.context
    for node in program.nodes:
        texts = [ir.StringAttr.get(origin_of(program, state, v), context) for v in node.results]
        node.op.attributes["dist.origin"] = ir.ArrayAttr.get(texts, context)
