"""Copies of a block's ops in the same block, for several micro-batches."""

from __future__ import annotations

from collections.abc import Mapping

from torch_mlir import ir

from shardc.dialects.aten.call import is_constant
from shardc.passes.manager.attributes import drop_attributes


class Copies:
    """Copier of ops to the position before ``before``.

    ``values`` maps original operands to those of copies; results of copies are added. Other values are not
    replaced, but lists of tensors are rebuilt.
    """

    def __init__(self, before: ir.Operation, values: Mapping[ir.Value, ir.Value]) -> None:
        self._before = before
        self.values: dict[ir.Value, ir.Value] = dict(values)

    def copy(self, op: ir.Operation) -> ir.Operation:
        """Copy an op, without the names by which a user observes its results."""
        operands = [self.operand(v) for v in op.operands]
        made = op.clone(ir.InsertionPoint(self._before)).operation
        for i, operand in enumerate(operands):
            made.operands[i] = operand
        drop_attributes(made, "dist.name")
        self.values.update(zip(op.results, made.results, strict=True))
        return made

    def operand(self, value: ir.Value) -> ir.Value:
        """Return the value that copies read instead of ``value``."""
        if value in self.values or not isinstance(value, ir.OpResult):
            return self.values.get(value, value)
        op = value.owner.operation
        # The original list of tensors may come after the copy that reads it.
        if is_constant(op) and any(not _is_number(v) for v in op.operands):
            self.copy(op)
        return self.values.get(value, value)


def _is_number(value: ir.Value) -> bool:
    """Return whether a value is a constant that is no list of values of the program."""
    if not isinstance(value, ir.OpResult) or not is_constant(value.owner.operation):
        return False
    return all(map(_is_number, value.owner.operands))


def erase(op: ir.Operation) -> None:
    """Erase an op and the lists that read it."""
    for result in op.results:
        for use in list(result.uses):
            erase(use.owner.operation)
    op.erase()
