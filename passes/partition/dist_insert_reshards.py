"""``dist-insert-reshards``: inserts a ``dist.reshard`` wherever a use needs another sharding than the value
has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.passes.manager.attributes import (
    SHARE,
    copy_attributes,
    drop_attributes,
    edge_attributes,
    phase_of,
    set_edge_attributes,
)
from shardc.passes.manager.program import Program, read_program
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.manager.sum_place import sum_is
from shardc.passes.partition.demand import RETURN, DemandAnalysis, Demands
from shardc.passes.partition.given_cuts import KEPT, read_kept
from shardc.passes.partition.operands import set_operand
from shardc.passes.partition.reassociate import reassociate
from shardc.passes.partition.share_views import share_views
from shardc.passes.partition.storage import split_by_phase, stored_parameters

Use = tuple[int, int]
"""(node, operand position) of one use."""


@dataclass(frozen=True)
class DistInsertReshards(ReadingPass):
    """Chooses the sharding of every call, and turns each change of layout into a ``dist.reshard``.

    Afterwards every operand has the sharding that its user's rule needs (the contract of level 2). Reshards
    of one value to one layout are shared. Parameters that are stored in shards (ZeRO-3) are gathered again in
    each phase, and in each iteration of a time loop; so are values that a search keeps in shards
    (``dist.kept``). All other values are kept from forward for backward. Without ``reshard_after_forward``,
    parameters are gathered once and kept, too.
    """

    name: ClassVar[str] = "dist-insert-reshards"
    reshard_after_forward: bool = True

    def apply(self, reading: Reading) -> bool:
        module = reading.module
        mesh, program = reading.sharded(level=2)
        codec = ShardingCodec(module.context, mesh)
        # With unequal shares, ranks run different iterations: they gather before the loop, and keep the
        # result.
        again = self.reshard_after_forward and not mesh.shares
        program = split_by_phase(module, program) if again else program
        demands = DemandAnalysis(program, codec, mesh).run()
        if reassociate(program, demands):
            program = read_program(module)
            assert program is not None
            demands = DemandAnalysis(program, codec, mesh).run()
        stored = stored_parameters(program) if again else {}
        kept = {value: layout for node in program.nodes for value, layout in read_kept(node, codec).items()}
        share_views(program, demands, {*stored, *kept}, mesh)
        _Inserter(program, codec, mesh, demands, stored, kept).run()
        return True


class _Inserter:
    def __init__(
        self,
        program: Program,
        codec: ShardingCodec,
        mesh: Mesh,
        demands: Demands,
        stored: Collection[int],
        kept: Mapping[int, Sharding],
    ) -> None:
        """Create the inserter. ``stored`` and ``kept`` values are gathered again in each phase; a kept one
        from its layout there, to which it is brought first.
        """
        self._program, self._codec, self._demands = program, codec, demands
        self._stored, self._kept = stored, kept
        self._loops = any(a.kind == "time" for a in mesh.axes)
        refined = [node for node in program.nodes if "dist.refine" in node.op.attributes]
        self._refined = {v for node in refined for v in node.results}
        self._refined |= {v for node in refined if sum_is("before", node.op) for v in node.operands}

    def run(self) -> None:
        for node in self._program.nodes:
            made = [self._demands.made[v] for v in node.results]
            node.op.attributes["dist.shardings"] = self._codec.array(made)
            drop_attributes(node.op, "dist.priorities", "dist.refine", KEPT)
        for value, uses in self._demands.uses.items():
            self._reshard_all(value, self._groups(value, uses))
        self._write_edges()

    def _reshard_all(self, value: int, groups: dict[tuple[Sharding, str], list[Use]]) -> None:
        """Insert a reshard for each group. A partial sum is reduced once, and sliced for uses that need a
        part.
        """
        if value in self._kept:
            self._reshard_kept(value, groups)
            return
        first = self._coarsest(value, [need for need, _ in groups])
        reduced: ir.Operation | None = None
        for (need, _), uses in sorted(groups.items(), key=lambda group: group[0][0] != first):
            made = self._reshard(value, need, uses, None if need == first else reduced)
            if need == first:
                reduced = made

    def _reshard_kept(self, value: int, groups: dict[tuple[Sharding, str], list[Use]]) -> None:
        """Bring a value to the layout in which it is kept, and insert a reshard of that for each group."""
        kept, made = self._kept[value], self._demands.made[value]
        first = groups.pop((kept, ""), [])
        source = self._reshard(value, kept, first, None) if kept != made else None
        for (need, _), uses in groups.items():
            self._reshard(value, need, uses, source)

    def _coarsest(self, value: int, needs: list[Sharding]) -> Sharding | None:
        """Return the sharding to which a partial sum is reduced, of whose blocks all other needs are
        parts.
        """
        if len(needs) < 2 or not self._demands.made[value].partial:
            return None
        return next((n for n in needs if not n.partial and all(_is_piece(o, n) for o in needs)), None)

    def _groups(
        self, value: int, uses: list[tuple[int, int, Sharding]]
    ) -> dict[tuple[Sharding, str], list[Use]]:
        """Group the uses that need another sharding than the value has by sharding and phase."""
        made = self._demands.made[value]
        kept = self._kept.get(value, made)
        is_again = value in self._stored or value in self._kept
        groups: dict[tuple[Sharding, str], list[Use]] = defaultdict(list)
        for node, position, need in uses:
            if need != made:
                again = node != RETURN and is_again and _grows(kept, need)
                phase = phase_of(self._op(node)) if again else ""
                if value in self._kept and phase == "recompute":  # a search counts one gather in backward
                    phase = "backward"
                groups[need, phase].append((node, position))
        return groups

    def _reshard(
        self, value: int, need: Sharding, uses: list[Use], reduced: ir.Operation | None
    ) -> ir.Operation:
        """Insert the reshard of ``value``, or of its form ``reduced``, for ``uses``."""
        program = self._program
        grows = _grows(self._kept.get(value, self._demands.made[value]), need)
        producer = program.producer[value]
        maker = program.nodes[producer].op if producer >= 0 else None
        reader = self._op(min((n for n, _ in uses if n != RETURN), default=RETURN))
        # A reshard that frees memory follows its producer; one that takes memory precedes its first use.
        early = None if grows else maker
        after = None if grows and value in self._kept else reduced or early
        place = ir.InsertionPoint.after(after) if after else ir.InsertionPoint(reader)
        source = reduced.result if reduced else program.values[value]
        op = ir.Operation.create(
            "dist.reshard",
            [source.type],
            [source],
            {"sharding": self._codec.write(need), "dist.shardings": self._codec.array([need])},
            loc=source.owner.location if maker else reader.location,
            ip=place,
        )
        copy_attributes(early or reader, op, "dist.phase")
        unit = ir.UnitAttr.get(program.module.context)
        if self._loops and value in self._stored and grows and reader != program.terminator:
            op.attributes["dist.in_loop"] = unit
        if value in self._refined:
            op.attributes["dist.reduce_first"] = unit
        for node, position in uses:
            if node == RETURN:
                program.terminator.operands[position] = op.result
            else:
                set_operand(program.nodes[node].op, position, op.result)
        return op

    def _op(self, node: int) -> ir.Operation:
        return self._program.terminator if node == RETURN else self._program.nodes[node].op

    def _write_edges(self) -> None:
        made, program = self._demands.made, self._program
        uses = [use for uses in self._demands.uses.values() for use in uses]
        needs = {position: need for node, position, need in uses if node == RETURN}
        self._note_shares()
        self._write_shardings("arg_attrs", program.arguments, [made[v] for v in program.arguments])
        self._write_shardings("res_attrs", program.returns, [needs[i] for i in range(len(program.returns))])

    def _note_shares(self) -> None:
        """Mark inputs whose rows are divided in unequal shares, since their layouts outside the loop do not
        show it.
        """
        program, shares = self._program, self._codec.mesh.shares
        rows = [edge_attributes(program.function, "arg_attrs", i) for i in range(len(program.arguments))]
        for row in rows if shares else ():
            used = self._codec.read(row["dist.sharding"]).used
            for name in (axis.name for axis in used if axis.name in shares):
                row[SHARE] = ir.StringAttr.get(name, program.module.context)
        set_edge_attributes(program.function, "arg_attrs", rows)

    def _write_shardings(self, which: str, values: list[int], shardings: list[Sharding]) -> None:
        """Add shardings and global types to arguments or results, and drop annotations of earlier passes."""
        program, rows = self._program, []
        for position, (value, sharding) in enumerate(zip(values, shardings, strict=True)):
            row = edge_attributes(program.function, which, position)
            row = {name: row[name] for name in row if name not in ("dist.refine", "dist.priorities")}
            row["dist.sharding"] = self._codec.write(sharding)
            if "dist.padded" not in row:  # else dist-pad has written the true type
                row["dist.global_type"] = ir.TypeAttr.get(program.values[value].type, program.module.context)
            rows.append(row)
        set_edge_attributes(program.function, which, rows)


def _grows(made: Sharding, need: Sharding) -> bool:
    """Return whether a device holds more after the reshard than before."""
    return _ways(need) < _ways(made)


def _ways(sharding: Sharding) -> int:
    return prod(a.size for dim in sharding.dims for a in dim)


def _is_piece(fine: Sharding, coarse: Sharding) -> bool:
    """Return whether each device's block under ``fine`` is a part of its block under ``coarse``."""
    pairs = zip(fine.dims, coarse.dims, strict=True)
    return not fine.partial and all(f[: len(c)] == c for f, c in pairs)
