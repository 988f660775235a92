"""Copies of ops in another block, with the constants that they read."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.aten.call import is_constant


class Copier:
    """Copies ops to ``ip``. ``values`` maps what they read to what the copies read; copies add their results."""

    def __init__(self, ip: ir.InsertionPoint, values: dict[ir.Value, ir.Value]) -> None:
        self.ip = ip
        self.values = values

    def copy(self, op: ir.Operation) -> ir.Operation:
        operands = [self._operand(v) for v in op.operands]
        made = op.clone(self.ip).operation
        for i, operand in enumerate(operands):
            made.operands[i] = operand
        self.values.update(zip(op.results, made.results, strict=True))
        return made

    def _operand(self, value: ir.Value) -> ir.Value:
        if value not in self.values:
            op = value.owner.operation
            assert is_constant(op) or op.name == "torch.prim.TupleConstruct", f"{op.name} is read and was not copied"
            self.copy(op)
        return self.values[value]
