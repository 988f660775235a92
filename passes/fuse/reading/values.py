"""SSA values of a program: their producers and readers, and the dims of transposes."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.aten.call import CallReader, OpCall, target_name
from shardc.dialects.aten.types import TensorType, read_type

LIST = "torch.prim.ListConstruct"
TURNS = frozenset(("aten.t", "aten.transpose.int", "aten.permute"))


def owner_of(value: ir.Value) -> ir.Operation | None:
    """Return the op that produces a value; None for a block argument."""
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def is_read(value: ir.Value) -> bool:
    return any(True for _ in value.uses)


def is_packed_for(value: ir.Value, reader: str) -> bool:
    """Return whether an op called ``reader`` reads the value in a tuple."""
    tuples = (use.owner.results[0] for use in value.uses if use.owner.name == "torch.prim.TupleConstruct")
    return any(use.owner.name == reader for tuple_ in tuples for use in tuple_.uses)


def type_of(value: ir.Value) -> TensorType:
    """Return the type of a tensor."""
    type_ = read_type(value.type)
    assert type_ is not None
    return type_


def turn_of(call: OpCall, rank: int) -> list[int] | None:
    """Return, for each dim of a transpose, the dim of its operand; None for other calls."""
    if call.target not in TURNS:
        return None
    if call.target == "aten.permute":
        return [d % rank for d in call["dims"]]
    x, y = (0, rank - 1) if call.target == "aten.t" else (call["dim0"] % rank, call["dim1"] % rank)
    order = list(range(rank))
    order[x], order[y] = y, x
    return order


def turned(value: ir.Value, reader: CallReader) -> tuple[ir.Value, list[int]] | None:
    """Return the source of a transpose, and the source's dim for each of its dims; None for other values."""
    op = owner_of(value)
    order = None
    if op is not None and target_of(op) in TURNS:
        call = reader.read(op)
        order = turn_of(call.spec, len(type_of(value).shape))
    return None if op is None or order is None else (op.operands[0], order)


def target_of(op: ir.Operation) -> str:
    """Return the target of a call; the op's name for other ops."""
    return target_name(op) if op.name.startswith("torch.") else op.name


def maker(value: ir.Value) -> ir.Operation | None:
    """Return the ATen call that makes a value; None if there is none."""
    op = owner_of(value)
    name = "" if op is None else op.name
    return op if name.startswith("torch.") and not name.startswith(("torch.prim", "torch.constant")) else None


def readers(value: ir.Value) -> list[ir.Operation]:
    """Return the ops that read a value, each once, usually in program order."""
    return list(dict.fromkeys(use.owner.operation for use in value.uses))[::-1]
