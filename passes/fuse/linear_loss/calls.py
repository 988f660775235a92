"""Calls around a linear layer: who makes and who reads a value, what is a view, what a transpose is of."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.aten.call import target_name
from shardc.dialects.aten.types import TensorType, read_type
from shardc.passes.fuse.bodies.captures import captured, inside
from shardc.passes.fuse.reading.view import VIEWS

LINKS = frozenset(("aten.view", "aten._unsafe_view", "aten.reshape", "aten._to_copy", "aten.clone"))
TURNS = frozenset(("aten.t", "aten.transpose.int", "aten.permute"))


def target_of(op: ir.Operation) -> str:
    """What ``op`` calls; its own name if that is no call."""
    return target_name(op) if op.name.startswith("torch.") else op.name


def maker(value: ir.Value) -> ir.Operation | None:
    """The ATen call that makes a value."""
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    is_call = op.name.startswith("torch.") and not op.name.startswith(("torch.prim", "torch.constant"))
    return op if is_call else None


def readers(value: ir.Value) -> list[ir.Operation]:
    """The ops that read a value, each once, as a rule the first one first."""
    return list(dict.fromkeys(use.owner.operation for use in value.uses))[::-1]


def type_of(value: ir.Value) -> TensorType:
    type_ = read_type(value.type)
    assert type_ is not None
    return type_


def is_view(op: ir.Operation) -> bool:
    return target_of(op) in VIEWS


def transposed(value: ir.Value) -> ir.Value | None:
    """What a matrix is the transpose of, as the block of ``value`` knows it; None if it is none."""
    turn = maker(captured(value))
    if turn is None or target_name(turn) not in TURNS:
        return None
    block = value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block
    return turn.operands[0] if turn.block == block else inside(turn.operands[0], block)


def untwisted(value: ir.Value) -> ir.Value:
    """The matrix itself for a transpose of its transpose."""
    once = transposed(value)
    twice = None if once is None else transposed(once)
    return value if twice is None else untwisted(twice)


def made_behind(value: ir.Value, first: ir.Operation) -> list[ir.Operation]:
    """``first`` and the ops behind it in its block, in order, that ``value`` is made by."""
    places = {other.operation: number for number, other in enumerate(first.block.operations)}
    found: dict[ir.Operation, None] = {}
    waiting = [value]
    while waiting:
        owner = waiting.pop().owner
        op = None if isinstance(owner, ir.Block) else owner.operation
        if op is not None and op not in found and op.block == first.block and places[op] >= places[first]:
            found[op] = None
            waiting += op.operands
    return sorted(found, key=places.__getitem__)


def first_of(ops: list[ir.Operation]) -> ir.Operation:
    """Which of the ops of one block stands first."""
    wanted = set(ops)
    return next(o.operation for o in ops[0].block.operations if o.operation in wanted)
