"""``dist-interleave``: weights that are several in one, stored so that each of them is cut."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from torch_mlir import ir

from shardc.diagnostics.base import remark
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.dist.interleaving import ATTRIBUTE, Interleaving, Parts
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.passes.interleave.fused import find_fused
from shardc.passes.interleave.moves import Move
from shardc.passes.interleave.spread import CallLayouts, Layout, Spread
from shardc.passes.interleave.writer import PartsWriter
from shardc.passes.manager.program import Node, Program
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.partition.operands import set_operand


@dataclass(frozen=True)
class DistInterleave(ReadingPass):
    """Stores a weight that is several in one (queries, keys and values; gate and up), and that the plan cuts
    there, block by block.

    Cut as it is, a device would have all queries and no values. Stored are the first blocks of all parts,
    then the second ones, and so on, one for each device: a slice of a part is then a slice within each
    device's block. All that hangs together with the dim is stored so too (bias, gradient, optimizer state),
    and ``dist.interleaved`` on an argument or result says it: the dim, the ways, the sizes of the parts. Does
    nothing where a part does not divide between its heads.
    """

    name: ClassVar[str] = "dist-interleave"

    def apply(self, reading: Reading) -> bool:
        mesh, program = read_mesh(reading.module), reading.program
        if mesh is None or program is None:
            return False
        seeds = _seeds(program, ShardingCodec(reading.module.context, mesh), mesh)
        if seeds:
            with reading.module.context, ir.Location.unknown():
                _Interleaver(program, Spread(program, seeds)).run()
        return bool(seeds)


def _seeds(program: Program, codec: ShardingCodec, mesh: Mesh) -> dict[int, Layout]:
    found: dict[int, Layout] = {}
    for position, value in enumerate(program.arguments):
        attribute = program.attribute(position, "dist.sharding")
        role, name = program.argument_key(position)
        if role != "param" or attribute is None:
            continue
        for dim, axes in enumerate(codec.read(attribute).dims):
            ways = prod(a.size for a in axes if not mesh.is_time(a))
            fused = find_fused(program, value, dim) if ways > 1 else None
            if fused is not None and fused.divides(ways):
                found[value] = {dim: Parts(ways, fused.sizes)}
                sizes = ", ".join(map(str, fused.sizes))
                remark(
                    "Interleaved",
                    f"dim {dim} of {name} is {len(fused.sizes)} parts ({sizes}), each cut in {ways}",
                )
                break
    return found


class _Interleaver:
    """Rewrites the step in place: no value changes its type."""

    def __init__(self, program: Program, spread: Spread) -> None:
        self._program, self._spread = program, spread
        self._builder = CallBuilder(program.block)
        self._values = list(program.values)
        self._converted: dict[
            tuple[ir.Value, tuple[tuple[int, Parts], ...], ir.Attribute | None], ir.Value
        ] = {}

    def run(self) -> None:
        for number, node in enumerate(self._program.nodes):
            self._rewrite(node, self._spread.of_call(number))
        self._return()
        for which, values, named in (
            ("arg_attrs", self._program.arguments, self._program.arguments),
            ("res_attrs", self._program.returns, self._returned()),
        ):
            self._write_edges(which, values, named)

    def _rewrite(self, node: Node, call: CallLayouts) -> None:
        reads = [self._as(v, layout, node.op) for v, layout in zip(node.operands, call.operands, strict=True)]
        if call.move is not None and call.whole is not None:
            self._move(node, call.move, call.whole, reads)
        else:
            for position, (value, new) in enumerate(zip(node.operands, reads, strict=True)):
                if new != self._values[value]:
                    set_operand(node.op, position, new)
        for value, layout in zip(node.results, call.results, strict=True):
            if layout != self._spread.layout(value):
                self._give(node, value, layout)

    def _move(self, node: Node, move: Move, whole: Parts, reads: list[ir.Value]) -> None:
        made = PartsWriter(self._builder, node.op).moved(move, whole, reads, node.spec.args)
        for name in node.op.attributes:
            if name.startswith("dist."):
                made.owner.attributes[name] = node.op.attributes[name]
        node.op.results[0].replace_all_uses_with(made)
        self._values[node.results[0]] = made
        node.op.erase()

    def _give(self, node: Node, value: int, layout: Layout) -> None:
        """A result as the others of its dim are stored, or somebody looks at it."""
        made = self._values[value]
        users = [(use.owner, use.operand_number) for use in made.uses]
        writer = PartsWriter(self._builder, made.owner, behind=True)
        new = self._between(writer, made, layout, self._spread.layout(value))
        for owner, number in users:
            owner.operands[number] = new
        if len(node.results) == 1:
            for name in ("dist.name", "dist.refine"):
                if name in made.owner.attributes:
                    new.owner.attributes[name] = made.owner.attributes[name]
                    del made.owner.attributes[name]
        self._values[value] = new

    def _as(self, value: int, layout: Layout, before: ir.Operation) -> ir.Value:
        """A value as ``layout`` has it; in each phase one."""
        have, ssa = self._spread.layout(value), self._values[value]
        if have == layout:
            return ssa
        key = (
            ssa,
            tuple(layout.items()),
            before.attributes["dist.phase"] if "dist.phase" in before.attributes else None,
        )
        if key not in self._converted:
            self._converted[key] = self._between(PartsWriter(self._builder, before), ssa, have, layout)
        return self._converted[key]

    def _between(self, writer: PartsWriter, value: ir.Value, have: Layout, want: Layout) -> ir.Value:
        for dim, parts in have.items():
            if want.get(dim) != parts:
                value = writer.restored(value, dim, parts)
        for dim, parts in want.items():
            if have.get(dim) != parts:
                value = writer.interleaved(value, dim, parts)
        return value

    def _returned(self) -> list[int]:
        """For each result the value whose layout it leaves with: state as it came in;
        -1 for what is as it should be.
        """
        program = self._program
        arguments = {
            program.argument_key(i): v
            for i, v in enumerate(program.arguments)
            if program.argument_key(i) != ("", "")
        }
        return [arguments.get(program.result_key(i), -1) for i in range(len(program.returns))]

    def _return(self) -> None:
        terminator = self._program.terminator
        assert terminator is not None
        for position, (value, like) in enumerate(zip(self._program.returns, self._returned(), strict=True)):
            layout = self._spread.layout(like) if like >= 0 else {}
            terminator.operands[position] = self._as(value, layout, terminator)

    def _write_edges(self, which: str, values: list[int], like: list[int]) -> None:
        function, rows = self._program.function, []
        context = function.context
        for position, edge in enumerate(like):
            old = ir.DictAttr(function.attributes[which][position]) if which in function.attributes else ()
            row: dict[str, ir.Attribute] = {n.name: n.attr for n in old}
            for dim, parts in self._spread.layout(edge).items() if edge >= 0 else ():
                row[ATTRIBUTE] = Interleaving(dim, parts).write(context)
            rows.append(ir.DictAttr.get(row, context))
        function.attributes[which] = ir.ArrayAttr.get(rows, context)
