"""Copies of ops of a block in the same block, each micro-batch's with values of its own."""

from __future__ import annotations

from collections.abc import Mapping

from torch_mlir import ir

from shardc.dialects.aten.call import is_constant
from shardc.passes.manager.attributes import drop_attributes


class Copies:
    """Copies ops before ``before``. ``values`` maps what they read to what copies read; copies add their own.

    A value that is not in it is read as it is, a list of tensors is made anew.
    """

    def __init__(self, before: ir.Operation, values: Mapping[ir.Value, ir.Value]) -> None:
        self._before = before
        self.values: dict[ir.Value, ir.Value] = dict(values)

    def copy(self, op: ir.Operation) -> ir.Operation:
        """A copy of an op, which no user observes."""
        operands = [self.operand(v) for v in op.operands]
        made = op.clone(ir.InsertionPoint(self._before)).operation
        for i, operand in enumerate(operands):
            made.operands[i] = operand
        drop_attributes(made, "dist.name")
        self.values.update(zip(op.results, made.results, strict=True))
        return made

    def operand(self, value: ir.Value) -> ir.Value:
        """What copies read for ``value``."""
        if value in self.values or not isinstance(value, ir.OpResult):
            return self.values.get(value, value)
        op = value.owner.operation
        # A list of tensors may stand behind the copy that reads it.
        if is_constant(op) and any(not _is_number(v) for v in op.operands):
            self.copy(op)
        return self.values.get(value, value)


def _is_number(value: ir.Value) -> bool:
    """Whether a value is a constant that is no list of values of the program."""
    if not isinstance(value, ir.OpResult) or not is_constant(value.owner.operation):
        return False
    return all(map(_is_number, value.owner.operands))


def erase(op: ir.Operation) -> None:
    """Erase an op and the lists that read it."""
    for result in op.results:
        for use in list(result.uses):
            erase(use.owner.operation)
    op.erase()
