"""``dist-interleave``: stores fused weights such that a split divides each of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from torch_mlir import ir

from shardc.diagnostics.base import remark
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.dist.constraint import constraint
from shardc.dialects.dist.interleaving import ATTRIBUTE, Interleaving, Parts
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.passes.interleave.folds import folded_rows
from shardc.passes.interleave.fused import find_fused
from shardc.passes.interleave.ring import remark_gathers, ring_ways, sees_all
from shardc.passes.interleave.spread import CallLayouts, Layout, LayoutSpread, stored
from shardc.passes.interleave.writer import PartsWriter
from shardc.passes.manager.attributes import (
    attributes_of,
    copy_attributes,
    edge_attributes,
    move_attributes,
    phase_of,
    set_edge_attributes,
)
from shardc.passes.manager.program import Node, Program
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.pad.image_pads import IMAGE_DIMS
from shardc.passes.partition.local_call import type_of
from shardc.passes.partition.operands import set_operand
from shardc.passes.propagate.refinement import read_refinements


@dataclass(frozen=True)
class DistInterleave(ReadingPass):
    """Stores a split weight of several parts (queries, keys, values; gate, up) in interleaved blocks.

    If the weight were split as it is, one device would have all queries and no values. The pass stores the
    first blocks of all parts, then the second blocks, and so on, one for each device. A slice of a part is
    then a slice within each device's block. All values with the same dim (bias, gradient, optimizer state)
    are stored the same way. ``dist.interleaved`` of an argument or result has the dim, the ways and the sizes
    of the parts. The pass does nothing if a part does not divide between its heads.

    If the plan splits the sequence of a batch, rows are interleaved, too: a linear layer merges [b, s] to b
    parts in sequence. With interleaved blocks the merged dim is split like the sequence, and no data moves.
    """

    name: ClassVar[str] = "dist-interleave"

    def apply(self, reading: Reading) -> bool:
        mesh, program = read_mesh(reading.module), reading.program
        if mesh is None or program is None:
            return False
        codec = ShardingCodec(reading.module.context, mesh)
        seeds = _seeds(program, codec, mesh)
        if seeds:
            spread = LayoutSpread(program, seeds)
            folds = folded_rows(program, spread, mesh)
            spread = LayoutSpread(program, folds, seeds) if folds else spread
            with reading.module.context, ir.Location.unknown():
                _Interleaver(program, spread, codec, mesh).run()
            remark_gathers(program)
        return bool(seeds)


def _seeds(program: Program, codec: ShardingCodec, mesh: Mesh) -> dict[int, Layout]:
    found: dict[int, Layout] = {}
    for position, value in enumerate(program.arguments):
        role, name = program.argument_key(position)
        if role == "input":
            found.update(_sequences(program, value, program.annotated(position, codec), mesh))
        for dim, axes in enumerate(program.annotated(position, codec).dims if role == "param" else ()):
            ways = prod(a.size for a in axes if not mesh.is_time(a))
            fused = find_fused(program, value, dim) if ways > 1 else None
            if fused is not None and fused.divides(ways):
                found[value] = {dim: Parts(ways, fused.sizes)}
                parts = f"{len(fused.sizes)} parts ({', '.join(map(str, fused.sizes))})"
                remark(
                    "Interleaved",
                    f"dim {dim} of {name} holds {parts}; each part is sharded over {ways} devices",
                )
                break
    return found | _constrained(program, codec, mesh) | _refined(program, mesh)


def _constrained(program: Program, codec: ShardingCodec, mesh: Mesh) -> dict[int, Layout]:
    """Return the layouts of sequences after convolutions, whose split comes from constraints."""
    found: dict[int, Layout] = {}
    for node in program.nodes:
        if node.op.name == "dist.constraint" and len(node.spec.result.shape) < IMAGE_DIMS:
            sharding = codec.read(node.op.attributes["sharding"])
            found |= _sequences(program, node.results[0], sharding, mesh)
    return found


def _refined(program: Program, mesh: Mesh) -> dict[int, Layout]:
    """Return the layouts of dims other than the first that refinements split; several axes may split one."""
    found: dict[int, Layout] = {}
    for refined in read_refinements(program):
        if program.producer[refined.value] >= 0 and refined.dim > 0:
            size = program.types[refined.value].shape[refined.dim]
            before = found.get(refined.value, {}).get(refined.dim, Parts(1, (size,)))
            ways = before.ways * mesh.size(refined.axis)
            if size % ways == 0:
                found[refined.value] = {refined.dim: Parts(ways, (size,))}
    return found


def _sequences(program: Program, value: int, sharding: Sharding, mesh: Mesh) -> dict[int, Layout]:
    """Return the layout of a value's dims, other than the first, that the sharding splits evenly.

    Reshapes may merge such a dim with the dims before it.
    """
    layout: Layout = {}
    for dim, axes in enumerate(sharding.dims):
        ways, size = prod(a.size for a in axes if not mesh.is_time(a)), program.types[value].shape[dim]
        if dim and ways > 1 and size % ways == 0:
            layout[dim] = Parts(ways, (size,))
    return {value: layout} if layout else {}


class _Interleaver:
    """Writer of the interleaved step, in place. No value changes its type."""

    def __init__(self, program: Program, spread: LayoutSpread, codec: ShardingCodec, mesh: Mesh) -> None:
        self._program, self._spread, self._codec, self._mesh = program, spread, codec, mesh
        self._builder = CallBuilder(program.block)
        self._values = list(program.values)
        refined = [(v, program.attribute(i, "dist.refine")) for i, v in enumerate(program.arguments)]
        self._refined = {value: said for value, said in refined if said is not None}
        self._converted: dict[tuple[ir.Value, tuple[tuple[int, Parts], ...], str], ir.Value] = {}

    def run(self) -> None:
        program = self._program
        for number, node in enumerate(program.nodes):
            self._rewrite(node, self._spread.of_call(number))
        state = program.state_of_results()
        self._return([{} if argument is None else self._spread.layout(argument) for argument in state])
        self._write_edges("arg_attrs", program.arguments)
        self._write_edges("res_attrs", state)

    def _rewrite(self, node: Node, call: CallLayouts) -> None:
        reads = [self._as(v, layout, node.op) for v, layout in zip(node.operands, call.operands, strict=True)]
        if call.move is not None and call.whole is not None:
            writer = PartsWriter.at(self._builder, node.op)
            self._replace(node, writer.moved(call.move, call.whole, reads, node.spec.args))
        elif call.folded:
            travels = ring_ways(node, self._mesh) > 1
            self._attend(node, "ring" if travels else "folded", call.folded, reads)
        elif self._is_ring(node, call):
            self._attend(node, "ring", 0, reads)
        elif call.rows:
            writer = PartsWriter.at(self._builder, node.op)
            self._replace(node, writer.reshaped(reads[0], node.spec.result.shape, call.rows))
        else:
            for position, (value, new) in enumerate(zip(node.operands, reads, strict=True)):
                if new != self._values[value]:
                    set_operand(node.op, position, new)
        for value, layout in zip(node.results, call.results, strict=True):
            if stored(layout) != stored(self._spread.layout(value)):
                self._give(node, value, layout)

    def _is_ring(self, node: Node, call: CallLayouts) -> bool:
        """Return whether to pass keys around a ring in an attention on rows in order.

        That needs rows and columns with the same split.
        """
        ways = ring_ways(node, self._mesh)
        rows = [layout.get(2) for layout in call.operands]
        return (
            ways > 1
            and sees_all(node)
            and all(p is not None and p.in_order and p.ways % ways == 0 for p in rows)
        )

    def _attend(self, node: Node, kind: str, ways: int, reads: list[ir.Value]) -> None:
        """Replace an attention by the form for folded rows, or for keys that are passed around a ring."""
        spec, op = node.spec, node.op
        target = spec.target.replace("shardc.", f"shardc.{kind}_")
        place = ir.InsertionPoint(op)
        args = (*reads, spec["scale"], ways)
        made = self._builder.call(target, args, spec.results, op.location, place, attributes_of(op))
        for value, old, new in zip(node.results, op.results, made.results, strict=True):
            old.replace_all_uses_with(new)
            self._values[value] = new
        op.erase()

    def _replace(self, node: Node, made: ir.Value) -> None:
        copy_attributes(node.op, made.owner)
        node.op.results[0].replace_all_uses_with(made)
        self._values[node.results[0]] = made
        node.op.erase()

    def _give(self, node: Node, value: int, layout: Layout) -> None:
        """Convert a result from ``layout`` to the layout in which its readers expect it."""
        made = self._values[value]
        users = [(use.owner, use.operand_number) for use in made.uses]
        writer = PartsWriter.at(self._builder, made.owner, ir.InsertionPoint.after(made.owner))
        new = self._between(writer, made, layout, self._spread.layout(value))
        for owner, number in users:
            owner.operands[number] = new
        if len(node.results) == 1:
            move_attributes(made.owner, new.owner, "dist.name", "dist.refine")
        self._values[value] = new

    def _as(self, value: int, layout: Layout, before: ir.Operation) -> ir.Value:
        """Return a value in ``layout``. All readers in a phase share one conversion."""
        have, ssa = self._spread.layout(value), self._values[value]
        if stored(have) == stored(layout):
            return ssa
        key = (ssa, tuple(layout.items()), phase_of(before))
        if key not in self._converted:
            made = self._between(PartsWriter.at(self._builder, before), ssa, have, layout)
            if value in self._refined:
                made.owner.attributes["dist.refine"] = self._refined[value]
            self._converted[key] = made
        return self._converted[key]

    def _between(self, writer: PartsWriter, value: ir.Value, have: Layout, want: Layout) -> ir.Value:
        have, want = stored(have), stored(want)
        for dim, parts in have.items():
            if want.get(dim) != parts:
                value = writer.restored(self._whole(writer, value, dim, parts), dim, parts)
        for dim, parts in want.items():
            if have.get(dim) != parts:
                value = writer.interleaved(self._whole(writer, value, dim, parts), dim, parts)
        return value

    def _whole(self, writer: PartsWriter, value: ir.Value, dim: int, parts: Parts) -> ir.Value:
        """Return a value gathered along a dim if that is folded, so that one collective moves all parts."""
        if not parts.folded:
            return value
        rank = len(type_of(value).shape)
        sharding = Sharding(((),) * rank, (), tuple(d != dim for d in range(rank)))
        made = constraint(value, sharding, self._codec, loc=writer.loc, ip=writer.ip)
        for name, attribute in writer.attributes.items():
            made.owner.attributes[name] = attribute
        return made

    def _return(self, layouts: list[Layout]) -> None:
        """Return state in the layout of its argument, and all other results in storage order."""
        terminator = self._program.terminator
        for position, (value, layout) in enumerate(zip(self._program.returns, layouts, strict=True)):
            terminator.operands[position] = self._as(value, layout, terminator)

    def _write_edges(self, which: str, values: Sequence[int | None]) -> None:
        """Write the interleaving of arguments or results. ``values``: arguments that have their layouts."""
        function, rows = self._program.function, []
        for position, value in enumerate(values):
            row = edge_attributes(function, which, position)
            for dim, parts in stored(self._spread.layout(value)).items() if value is not None else ():
                row[ATTRIBUTE] = Interleaving(dim, parts).write(function.context)
            rows.append(row)
        set_edge_attributes(function, which, rows)
