"""Operands of ops, and copies of ops together with the constants and integers (offsets) that they read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from torch_mlir import ir

from shardc.dialects.aten.call import is_constant


def reads(op: ir.Operation) -> Iterator[ir.Value]:
    """Yield the values that an op reads, including those in lists, without constants."""
    for value in op.operands:
        if isinstance(value, ir.OpResult) and is_constant(value.owner.operation):
            yield from reads(value.owner.operation)
        else:
            yield value


class Copier:
    """Copier of ops to ``ip``. ``values`` maps original values to copies; each copied op adds its results."""

    def __init__(
        self, ip: ir.InsertionPoint, values: Mapping[ir.Value, ir.Value] | Iterable[tuple[ir.Value, ir.Value]]
    ) -> None:
        self.ip = ip
        self.values: dict[ir.Value, ir.Value] = dict(values)

    def copy(self, op: ir.Operation) -> ir.Operation:
        operands = [self.operand(v) for v in op.operands]
        made = op.clone(self.ip).operation
        for i, operand in enumerate(operands):
            made.operands[i] = operand
        self.values.update(zip(op.results, made.results, strict=True))
        return made

    def operand(self, value: ir.Value) -> ir.Value:
        """Return the copy of ``value`` in the block."""
        if value not in self.values:
            op = value.owner.operation
            is_light = is_constant(op) or op.name == "torch.prim.TupleConstruct"
            assert is_light or str(value.type) == "!torch.int", f"{op.name} is read and was not copied"
            self.copy(op)
        return self.values[value]
