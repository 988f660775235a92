"""Replacement of an op's operands."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.aten.types import read_type


def tensors_read(op: ir.Operation) -> list[ir.Value]:
    """Return the tensors that ``op`` reads, in order; tensors in lists are counted singly."""
    members = (list(v.owner.operands) if _is_tensor_list(v) else [v] for v in op.operands)
    return [value for each in members for value in each if _is_tensor(value)]


def set_operand(op: ir.Operation, position: int, new: ir.Value) -> None:
    """Replace the ``position``-th tensor that ``op`` reads by ``new``; tensors in lists are counted singly.

    A list may be shared with other ops, so a new one is built. Raises IndexError.
    """
    for slot, operand in enumerate(op.operands):
        listed = _is_tensor_list(operand)
        members = list(operand.owner.operands) if listed else [operand]
        tensors = [i for i, v in enumerate(members) if _is_tensor(v)]
        if position >= len(tensors):
            position -= len(tensors)
            continue
        members[tensors[position]] = new
        if not listed:
            op.operands[slot] = new
            return
        old, place = operand.owner, ir.InsertionPoint(op)
        fresh = ir.Operation.create(old.name, [operand.type], members, loc=old.location, ip=place)
        op.operands[slot] = fresh.result
        if not list(old.results[0].uses):
            old.erase()
        return
    raise IndexError(position)


def _is_tensor(value: ir.Value) -> bool:
    return read_type(value.type) is not None


def _is_tensor_list(value: ir.Value) -> bool:
    if not isinstance(value, ir.OpResult) or value.owner.name != "torch.prim.ListConstruct":
        return False
    return any(map(_is_tensor, value.owner.operands))
