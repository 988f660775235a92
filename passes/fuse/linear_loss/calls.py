"""Transposes around a linear layer, and the order of the calls that make a value."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.aten.call import target_name
from shardc.passes.fuse.bodies.captures import captured, inside
from shardc.passes.fuse.reading.values import TURNS, maker, owner_of

LINKS = frozenset(("aten.view", "aten._unsafe_view", "aten.reshape", "aten._to_copy", "aten.clone"))


def transposed(value: ir.Value) -> ir.Value | None:
    """Return the source of a matrix's transpose, as a value of the matrix's block; None for other values."""
    turn = maker(captured(value))
    if turn is None or target_name(turn) not in TURNS:
        return None
    block = value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block
    return turn.operands[0] if turn.block == block else inside(turn.operands[0], block)


def untwisted(value: ir.Value) -> ir.Value:
    """Remove pairs of transposes that cancel each other."""
    once = transposed(value)
    twice = None if once is None else transposed(once)
    return value if twice is None else untwisted(twice)


def made_behind(value: ir.Value, first: ir.Operation) -> list[ir.Operation]:
    """Return, in order, the ops from ``first`` on in its block that contribute to ``value``."""
    places = {other.operation: number for number, other in enumerate(first.block.operations)}
    found: dict[ir.Operation, None] = {}
    waiting = [value]
    while waiting:
        op = owner_of(waiting.pop())
        if op is not None and op not in found and op.block == first.block and places[op] >= places[first]:
            found[op] = None
            waiting += op.operands
    return sorted(found, key=places.__getitem__)


def first_of(ops: list[ir.Operation]) -> ir.Operation:
    """Return the first of several ops of a block."""
    wanted = set(ops)
    return next(o.operation for o in ops[0].block.operations if o.operation in wanted)
