"""Calls that need a split dim whole: all-to-alls move the split to another dim while they run.

For a sort of [4, 8, 64, 64] along dim 2, split 8 ways, each device sorts one of the 8 entries of dim 1 in
full. An all-gather would send 8 times as much. The moves are written as constraints, which propagation and
reshards follow. A concatenation of 1 and 64 elements makes 65, which devices do not divide: its result, and
what follows it, keep the other dim split.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import prod

from torch_mlir import ir

from shardc.cost.collective import sent_bytes
from shardc.dialects.dist.constraint import constraint
from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec
from shardc.dialects.rules.rule import Dims
from shardc.passes.manager.attributes import copy_attributes, phase_of
from shardc.passes.manager.program import Node
from shardc.passes.partition.operands import set_operand, tensors_read
from shardc.passes.propagate.split.foresight import JOINS, MOVED, Foresight, is_walked
from shardc.passes.propagate.split.joins import is_refined_later, makes_uneven


@dataclass(frozen=True)
class Layouts:
    """The shardings of a call's tensor outside and inside the call."""

    outside: Sharding
    inside: Sharding

    @property
    def goes_back(self) -> bool:
        """True if the two shardings differ but use the same axes, so that an all-to-all leads back."""
        axes = set(self.inside.used)
        return self.outside != self.inside and axes == set(self.outside.used)


@dataclass(frozen=True)
class Move:
    """A call during which another dim is split ``ways`` ways.

    ``made_here``: operands that calls without operands create. ``stays``: whether results keep the inside
    sharding.
    """

    node: Node
    operands: tuple[Layouts, ...]
    results: tuple[Layouts, ...]
    made_here: frozenset[int]
    ways: int
    stays: bool = False


def find_moves(seen: Foresight) -> dict[int, Move]:
    """Return the moves that send no more bytes than a gather, by node number."""
    moves = {n: move for n, node in enumerate(seen.program.nodes) if (move := _possible(seen, node))}
    while dear := [n for n, move in moves.items() if not _saves(seen, move, moves)]:
        for number in dear:
            del moves[number]
    return moves


def _possible(seen: Foresight, node: Node) -> Move | None:
    """Return the move to the first other dim that can be split; None if none can, or if no axis splits the
    call.
    """
    joins = node.spec.target in JOINS
    if not (joins or node.spec.target in MOVED or is_walked(seen.program, node)) or not node.known:
        return None
    if _refined(seen, node):
        return None
    cuts = {axes for p in range(len(node.operands)) if (axes := seen.axes(node, p))}
    axes = cuts.pop() if len(cuts) == 1 else ()
    if not axes or any(map(seen.mesh.is_time, axes)):
        return None
    if not joins:
        return next((move for f in node.rule.factors if (move := _move(seen, node, axes, f))), None)
    if not makes_uneven(seen, node, axes) or is_refined_later(seen, node, axes):
        return None
    features = node.rule.results[0][-1]  # layers that follow sum over them
    others = (f for f in node.rule.factors if f not in features)
    move = next((move for f in others if (move := _move(seen, node, axes, f))), None)
    return None if move is None else replace(move, stays=True)


def _refined(seen: Foresight, node: Node) -> bool:
    """Return whether a later round of propagation split a tensor; a constraint would wrongly fix that
    split.
    """
    later = seen.state.priority
    return any((v, axis.name) in later for v in node.values for axis in seen.sharding(v).used)


def _move(seen: Foresight, node: Node, axes: Axes, factor: str) -> Move | None:
    """Return the move of ``axes`` to the dim of ``factor`` in all tensors of the call; None if impossible."""
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
    return Move(node, tuple(layouts[:count]), tuple(layouts[count:]), here, ways)


def _moved(sharding: Sharding, dims: Dims, axes: Axes, factor: str) -> Sharding:
    kept = [tuple(a for a in dim if not any(a.overlaps(b) for b in axes)) for dim in sharding.dims]
    at = dims.index((factor,))
    kept[at] = (*kept[at], *axes)
    return Sharding(tuple(kept))


def _saves(seen: Foresight, move: Move, moves: Collection[int]) -> bool:
    """Return whether all-to-alls of operands and results send no more than all-gathers of the operands.

    A value that one of ``moves`` produces for another, such as a sort's indices for its gradient, is not
    sent.
    """
    program, node = seen.program, move.node
    gathered = moved = 0.0
    for position, (value, layouts) in enumerate(zip(node.operands, move.operands, strict=True)):
        here = position in move.made_here or program.producer[value] in moves
        if seen.axes(node, position) and not here:
            gathered += _sent(seen, "all_gather", move.ways, value, layouts.outside)
            moved += _sent(seen, "all_to_all", move.ways, value, layouts.outside)
    for value, layouts in zip(node.results, move.results, strict=True) if not move.stays else ():
        if value in program.returns or any(n not in moves for n in program.users[value]):
            kind = "all_to_all" if layouts.goes_back else "all_gather"
            moved += _sent(seen, kind, move.ways, value, layouts.inside)
    return moved <= gathered


def _sent(seen: Foresight, kind: str, ways: int, value: int, sharding: Sharding) -> float:
    """Return the bytes that each device sends of a tensor with this sharding."""
    return sent_bytes(kind, ways, seen.program.types[value].size_bytes / prod(a.size for a in sharding.used))


class Mover:
    """Writes moves."""

    def __init__(self, codec: ShardingCodec) -> None:
        self._codec = codec
        self._back: dict[ir.Value, tuple[ir.Value, Sharding]] = {}
        """Result in its outside sharding -> the inside value, and the inside sharding."""
        self._made: list[ir.Operation] = []
        self._moved: dict[tuple[ir.Value, Sharding, str], ir.Value] = {}
        """(value, sharding, phase) -> the constrained value, built once."""

    def write(self, move: Move) -> None:
        op = move.node.op
        for position, (value, layouts) in enumerate(zip(tensors_read(op), move.operands, strict=True)):
            set_operand(op, position, self._inside(value, layouts, op, position in move.made_here))
        place = ir.InsertionPoint.after(op)
        for result, layouts in zip(op.results, move.results, strict=True):
            uses = [(use.owner, use.operand_number) for use in result.uses]
            inside = self._constraint(result, layouts.inside, op, place)
            outside = inside
            if layouts.goes_back:
                outside = self._constraint(inside, layouts.outside, op, place)
                self._back[outside] = inside, layouts.inside
            for owner, number in uses:
                owner.operands[number] = outside

    def erase_unread(self) -> None:
        """Erase constraints without readers."""
        for op in reversed(self._made):
            if not list(op.results[0].uses):
                op.erase()

    def _inside(self, value: ir.Value, layouts: Layouts, op: ir.Operation, made_here: bool) -> ir.Value:
        """Return an operand in the call's inside sharding, taken directly from another moved call if
        possible.
        """
        before, sharding = self._back.get(value, (value, None))
        if sharding == layouts.inside:
            return before
        key = (value, layouts.inside, phase_of(op))
        if key not in self._moved:
            place = ir.InsertionPoint(op)
            outside = value if made_here else self._constraint(value, layouts.outside, op, place)
            self._moved[key] = self._constraint(outside, layouts.inside, op, place)
        return self._moved[key]

    def _constraint(
        self, value: ir.Value, sharding: Sharding, op: ir.Operation, place: ir.InsertionPoint
    ) -> ir.Value:
        found = constraint(value, sharding, self._codec, loc=op.location, ip=place)
        copy_attributes(op, found.owner, "dist.phase")
        self._made.append(found.owner)
        return found
