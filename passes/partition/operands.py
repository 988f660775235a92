"""Changing what an op reads."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.aten.types import read_type


def set_operand(op: ir.Operation, position: int, new: ir.Value) -> None:
    """Make the ``position``-th tensor that ``op`` reads be ``new``; tensors in lists count one by one.

    A list may be shared with other ops, so it is built anew.
    """
    count = 0
    for slot, operand in enumerate(op.operands):
        if not _is_tensor_list(operand):
            if _is_tensor(operand):
                if count == position:
                    op.operands[slot] = new
                    return
                count += 1
            continue
        members = list(operand.owner.operands)
        tensors = [i for i, v in enumerate(members) if _is_tensor(v)]
        if position < count + len(tensors):
            members[tensors[position - count]] = new
            old = operand.owner
            fresh = ir.Operation.create(
                old.name, [operand.type], members, loc=old.location, ip=ir.InsertionPoint(op)
            )
            op.operands[slot] = fresh.result
            if not list(old.results[0].uses):
                old.erase()
            return
        count += len(tensors)
    raise IndexError(position)


def _is_tensor(value: ir.Value) -> bool:
    return read_type(value.type) is not None


def _is_tensor_list(value: ir.Value) -> bool:
    owner = value.owner
    if not isinstance(owner, ir.Operation | ir.OpView):
        return False
    return owner.operation.name == "torch.prim.ListConstruct" and any(map(_is_tensor, owner.operands))
