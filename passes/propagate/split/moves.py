"""Calls that need a dim whole which devices cut: all-to-alls cut another dim while they run.

A sort of [4, 8, 64, 64] along dim 2, cut 8 ways: 1/8 of the 8 rows each, all elements of them. An all-gather
sends 8 times what an all-to-all does. Written as constraints, which propagation and reshards follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from torch_mlir import ir

from shardc.cost.collective import sent_bytes
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.constraint import constraint
from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec
from shardc.dialects.rules.rule import Dims
from shardc.passes.manager.attributes import copy_attributes
from shardc.passes.manager.program import Node
from shardc.passes.partition.operands import set_operand
from shardc.passes.propagate.split.foresight import MOVED, Foresight


@dataclass(frozen=True)
class Layouts:
    """How a tensor of a call lies outside of the call, and how in it."""

    outside: Sharding
    inside: Sharding

    @property
    def goes_back(self) -> bool:
        """Whether readers have it cut over the same axes."""
        axes = set(self.inside.used)
        return self.outside != self.inside and axes == set(self.outside.used)


@dataclass(frozen=True)
class Move:
    """A call that works while another dim is cut. ``made_here``: operands that a call without any makes."""

    node: Node
    operands: tuple[Layouts, ...]
    results: tuple[Layouts, ...]
    made_here: frozenset[int]


def find_moves(seen: Foresight) -> Iterator[tuple[int, Move]]:
    """The calls that send fewer bytes so than with a gather, by their numbers."""
    for number, node in enumerate(seen.program.nodes):
        if node.spec.target in MOVED and node.known:
            cuts = {axes for p in range(len(node.operands)) if (axes := seen.axes(node, p))}
            axes = cuts.pop() if len(cuts) == 1 else ()
            if axes and not any(map(seen.mesh.is_time, axes)) and not _refined(seen, node):
                moves = (_move(seen, node, axes, factor) for factor in node.rule.factors)
                if move := next((m for m in moves if m and _saves(seen, m, axes)), None):
                    yield number, move


def _refined(seen: Foresight, node: Node) -> bool:
    """Whether a later round of propagation cut a tensor: such cuts give way, constraints do not."""
    return any(value in node.values for value, _ in seen.state.priority)


def _move(seen: Foresight, node: Node, axes: Axes, factor: str) -> Move | None:
    """The call with ``axes`` on the dim that is ``factor`` in all of its tensors; None if that can't be."""
    rule = node.rule
    if any(dims.count((factor,)) != 1 for dims in rule.operands + rule.results):
        return None
    layouts: list[Layouts] = []
    ways = prod(a.size for a in axes)
    for dims, value in zip(rule.operands + rule.results, node.values, strict=True):
        outside = seen.sharding(value).closed()
        inside = _moved(outside, dims, axes, factor)
        at = dims.index((factor,))
        if rule.sizes[factor] % (outside.ways(at) * ways if inside != outside else outside.ways(at)):
            return None
        layouts.append(Layouts(outside, inside))
    count = len(node.operands)
    producers = [seen.program.producer[v] for v in node.operands]
    here = frozenset(p for p, n in enumerate(producers) if n >= 0 and not seen.program.nodes[n].operands)
    return Move(node, tuple(layouts[:count]), tuple(layouts[count:]), here)


def _moved(sharding: Sharding, dims: Dims, axes: Axes, factor: str) -> Sharding:
    kept = [tuple(a for a in dim if not any(a.overlaps(b) for b in axes)) for dim in sharding.dims]
    at = dims.index((factor,))
    kept[at] = (*kept[at], *axes)
    return Sharding(tuple(kept))


def _saves(seen: Foresight, move: Move, axes: Axes) -> bool:
    """Whether all-to-alls of operands and results send no more than all-gathers of the operands.

    What one moved call makes for another (a sort its places for the gradient) is not sent.
    """
    ways, program = prod(a.size for a in axes), seen.program
    gathered = moved = 0.0
    for position, (value, layouts) in enumerate(zip(move.node.operands, move.operands, strict=True)):
        if position not in move.made_here and seen.axes(move.node, position) and not _is_moved(seen, value):
            gathered += _sent(seen, "all_gather", ways, value, layouts.outside)
            moved += _sent(seen, "all_to_all", ways, value, layouts.outside)
    for value, layouts in zip(move.node.results, move.results, strict=True):
        readers = {program.nodes[n].spec.target for n in program.users[value]}
        if not readers <= MOVED or value in program.returns:
            kind = "all_to_all" if layouts.goes_back else "all_gather"
            moved += _sent(seen, kind, ways, value, layouts.inside)
    return moved <= gathered


def _is_moved(seen: Foresight, value: int) -> bool:
    producer = seen.program.producer[value]
    return producer >= 0 and seen.program.nodes[producer].spec.target in MOVED


def _sent(seen: Foresight, kind: str, ways: int, value: int, sharding: Sharding) -> float:
    """What each device sends of a tensor that lies as ``sharding``."""
    return sent_bytes(kind, ways, seen.program.types[value].size_bytes / prod(a.size for a in sharding.used))


class Mover:
    """Writes moves."""

    def __init__(self, codec: ShardingCodec) -> None:
        self._codec = codec
        self._back: dict[ir.Value, tuple[ir.Value, Sharding]] = {}
        """Of what went back to its layout outside: what it was inside, and that layout."""
        self._made: list[ir.Operation] = []

    def write(self, move: Move) -> None:
        op = move.node.op
        tensors = [v for v in op.operands if read_type(v.type) is not None]
        for position, (value, layouts) in enumerate(zip(tensors, move.operands, strict=True)):
            set_operand(op, position, self._inside(value, layouts, op, position in move.made_here))
        for result, layouts in zip(op.results, move.results, strict=True):
            uses = [(use.owner, use.operand_number) for use in result.uses]
            place = ir.InsertionPoint.after(op)
            inside = self._constraint(result, layouts.inside, op, place)
            outside = inside
            if layouts.goes_back:
                outside = self._constraint(inside, layouts.outside, op, place)
                self._back[outside] = inside, layouts.inside
            for owner, number in uses:
                owner.operands[number] = outside

    def erase_unread(self) -> None:
        """Drop constraints on what is not read any more."""
        for op in reversed(self._made):
            if not list(op.results[0].uses):
                op.erase()

    def _inside(self, value: ir.Value, layouts: Layouts, op: ir.Operation, made_here: bool) -> ir.Value:
        """An operand as the call reads it; what another moved call made comes from there as it is."""
        before, sharding = self._back.get(value, (value, None))
        if sharding == layouts.inside:
            return before
        place = ir.InsertionPoint(op)
        if not made_here:
            value = self._constraint(value, layouts.outside, op, place)
        return self._constraint(value, layouts.inside, op, place)

    def _constraint(
        self, value: ir.Value, sharding: Sharding, op: ir.Operation, place: ir.InsertionPoint
    ) -> ir.Value:
        found = constraint(value, sharding, self._codec, loc=op.location, ip=place)
        copy_attributes(op, found.owner, "dist.phase")
        self._made.append(found.owner)
        return found
