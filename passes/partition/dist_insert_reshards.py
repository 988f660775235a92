"""``dist-insert-reshards``: an explicit ``dist.reshard`` between what a value is and what its user needs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.passes.manager.program import Program, read_program
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.partition.demand import RETURN, DemandAnalysis, Demands
from shardc.passes.partition.operands import set_operand
from shardc.passes.partition.reassociate import reassociate
from shardc.passes.partition.share_views import share_views
from shardc.passes.partition.storage import phase_of, split_by_phase, stored_parameters

Use = tuple[int, int]
"""(node, operand position) of one use."""


@dataclass(frozen=True)
class DistInsertReshards(ReadingPass):
    """Decides how every call is cut and makes each change of layout a ``dist.reshard``.

    Afterwards every operand's sharding is what its user's rule needs (the level-2 contract). Reshards of one
    value to one layout are shared. Parameters that are stored in pieces (ZeRO-3) are gathered again in each
    phase, and in each iteration of a time loop; everything else is kept from forward for backward.
    """

    name: ClassVar[str] = "dist-insert-reshards"

    def apply(self, reading: Reading) -> bool:
        module = reading.module
        mesh, program = reading.sharded(level=2)
        codec = ShardingCodec(module.context, mesh)
        program = split_by_phase(module, program)
        demands = DemandAnalysis(program, codec, mesh).run()
        if reassociate(program, demands):
            again = read_program(module)
            assert again is not None
            program, demands = again, DemandAnalysis(again, codec, mesh).run()
        share_views(program, demands, stored_parameters(program), mesh)
        _Inserter(program, codec, mesh, demands).run()
        return True


class _Inserter:
    def __init__(self, program: Program, codec: ShardingCodec, mesh: Mesh, demands: Demands) -> None:
        self._program = program
        self._codec = codec
        self._mesh = mesh
        self._demands = demands
        self._stored = stored_parameters(program)
        self._loops = any(a.kind == "time" for a in mesh.axes)
        self._refined = {
            v for node in program.nodes if "dist.refine" in node.op.attributes for v in node.results
        }

    def run(self) -> None:
        program, codec = self._program, self._codec
        for node in program.nodes:
            made = [self._demands.made[v] for v in node.results]
            node.op.attributes["dist.shardings"] = codec.array(made)
            for name in ("dist.priorities", "dist.refine"):
                if name in node.op.attributes:
                    del node.op.attributes[name]
        for value, uses in self._demands.uses.items():
            self._reshard_all(value, self._groups(value, uses))
        self._write_edges()

    def _reshard_all(self, value: int, groups: dict[tuple[Sharding, str], list[Use]]) -> None:
        """A reshard for each group; a partial sum is reduced once, and cut for those that need a
        piece of it.
        """
        first = self._coarsest(value, [need for need, _ in groups])
        reduced: ir.Operation | None = None
        for (need, _), uses in sorted(groups.items(), key=lambda group: group[0][0] != first):
            made = self._reshard(value, need, uses, None if need == first else reduced)
            if need == first:
                reduced = made

    def _coarsest(self, value: int, needs: list[Sharding]) -> Sharding | None:
        """What a partial sum is reduced to if all other needs are pieces of that; None if there is no such
        one.
        """
        if len(needs) < 2 or not self._demands.made[value].partial:
            return None
        return next((n for n in needs if not n.partial and all(_is_piece(o, n) for o in needs)), None)

    def _groups(
        self, value: int, uses: list[tuple[int, int, Sharding]]
    ) -> dict[tuple[Sharding, str], list[Use]]:
        """The uses that need something else than what is there, by what they need and in which phase."""
        made = self._demands.made[value]
        groups: dict[tuple[Sharding, str], list[Use]] = defaultdict(list)
        for node, position, need in uses:
            if need != made:
                again = value in self._stored and _grows(made, need)
                groups[need, self._phase(node) if again else ""].append((node, position))
        return groups

    def _reshard(
        self, value: int, need: Sharding, uses: list[Use], reduced: ir.Operation | None
    ) -> ir.Operation:
        """The reshard of ``value``, or of what it was ``reduced`` to already, for ``uses``."""
        program = self._program
        made = self._demands.made[value]
        first = min((n for n, _ in uses if n != RETURN), default=len(program.nodes))
        place = ir.InsertionPoint.after(reduced) if reduced else self._place(value, made, need, first)
        source = reduced.result if reduced else program.values[value]
        location = source.owner.location if program.producer[value] >= 0 else self._op(first).location
        op = ir.Operation.create(
            "dist.reshard",
            [source.type],
            [source],
            {"sharding": self._codec.write(need), "dist.shardings": self._codec.array([need])},
            loc=location,
            ip=place,
        )
        phase = self._op(first).attributes
        if not _grows(made, need) and program.producer[value] >= 0:
            phase = program.nodes[program.producer[value]].op.attributes
        if "dist.phase" in phase:
            op.attributes["dist.phase"] = phase["dist.phase"]
        unit = ir.UnitAttr.get(program.module.context)
        if self._loops and value in self._stored and _grows(made, need) and first < len(program.nodes):
            op.attributes["dist.in_loop"] = unit
        if value in self._refined:
            op.attributes["dist.reduce_first"] = unit
        for node, position in uses:
            if node == RETURN:
                assert program.terminator is not None
                program.terminator.operands[position] = op.result
            else:
                set_operand(program.nodes[node].op, position, op.result)
        return op

    def _place(self, value: int, made: Sharding, need: Sharding, first: int) -> ir.InsertionPoint:
        """What frees memory comes right after its producer; what takes memory right before its first use."""
        producer = self._program.producer[value]
        if producer >= 0 and not _grows(made, need):
            return ir.InsertionPoint.after(self._program.nodes[producer].op)
        return ir.InsertionPoint(self._op(first))

    def _op(self, node: int) -> ir.Operation:
        if node < len(self._program.nodes):
            return self._program.nodes[node].op
        assert self._program.terminator is not None
        return self._program.terminator

    def _phase(self, node: int) -> str:
        return phase_of(self._op(node)) if node != RETURN else ""

    def _write_edges(self) -> None:
        program, codec, context = self._program, self._codec, self._program.module.context
        made = self._demands.made
        arguments = [
            {
                "dist.sharding": codec.write(made[v]),
                "dist.global_type": ir.TypeAttr.get(program.values[v].type, context),
            }
            for v in program.arguments
        ]
        needs: dict[int, Sharding] = {}
        for uses in self._demands.uses.values():
            needs |= {position: need for node, position, need in uses if node == RETURN}
        results = [
            {
                "dist.sharding": codec.write(needs[i]),
                "dist.global_type": ir.TypeAttr.get(program.values[v].type, context),
            }
            for i, v in enumerate(program.returns)
        ]
        for known, rows in ((program.attribute, arguments), (program.result_attribute, results)):
            for position, row in enumerate(rows):
                if known(position, "dist.padded") is not None:
                    del row["dist.global_type"]  # dist-pad has written the true one
        for which, rows in (("arg_attrs", arguments), ("res_attrs", results)):
            program.function.attributes[which] = merge_attributes(program.function, which, rows, context)


def merge_attributes(
    function: ir.Operation, which: str, rows: list[dict[str, ir.Attribute]], context: ir.Context
) -> ir.ArrayAttr:
    """A function's argument or result attributes with ``rows`` added, the passes' own annotations dropped."""
    merged = []
    for position, row in enumerate(rows):
        old = ir.DictAttr(function.attributes[which][position]) if which in function.attributes else ()
        kept = {n.name: n.attr for n in old if n.name not in ("dist.refine", "dist.priorities")}
        merged.append(ir.DictAttr.get({**kept, **row}, context))
    return ir.ArrayAttr.get(merged, context)


def _grows(made: Sharding, need: Sharding) -> bool:
    """Whether a device holds more after the reshard than before."""
    return _ways(need) < _ways(made)


def _ways(sharding: Sharding) -> int:
    return prod(a.size for dim in sharding.dims for a in dim)


def _is_piece(fine: Sharding, coarse: Sharding) -> bool:
    """Whether each device's block under ``fine`` is cut out of its block under ``coarse``."""
    pairs = zip(fine.dims, coarse.dims, strict=True)
    return not fine.partial and all(f[: len(c)] == c for f, c in pairs)
