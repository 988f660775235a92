"""Integers of 64 bits that are computed from loop indices, as integers of 32 bits where their ranges allow.

A vector holds twice as many of these, and AVX2 has no conversion of 64-bit integers to floats. Ranges follow
from the bounds of loops. What is read from memory has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch_mlir import ir
from torch_mlir.dialects import scf

from shardc.backends.cpu.lanes.ranges import Ranges, add_index, range_of
from shardc.backends.cpu.object_code.marks import copied
from shardc.dialects.inner_ops import inner_ops

_LEAST, _MOST = -(1 << 31), (1 << 31) - 1
_SIGNED = range(6)
"""Predicates of ``arith.cmpi`` that compare equality or signed integers."""


def narrow_integers(module: ir.Module) -> None:
    """Compute such integers of ``module`` in 32 bits, too. Canonicalization removes unread ones."""
    with module.context, ir.Location.unknown():
        for function in module.body:
            _Narrow().visit(function.operation)


@dataclass(eq=False)
class _Narrow:
    """``ranges``: of indices and integers of 64 bits. ``twins``: equal values of 32 bits."""

    ranges: Ranges = field(default_factory=dict)
    twins: dict[ir.Value, ir.Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.short, self.long = (ir.IntegerType.get_signless(bits) for bits in (32, 64))

    def visit(self, function: ir.Operation) -> None:
        for op in list(inner_ops(function)):
            if isinstance(op.opview, scf.ForOp):
                add_index(op.opview, self.ranges)
            elif len(op.results) == 1 and op.results[0].type in (self.long, ir.IndexType.get()):
                self._integer(op)
            elif len(op.results) == 1:
                self._reader(op)

    def _integer(self, op: ir.Operation) -> None:
        """Find the range of an op's result, and add its twin if it is short."""
        value = op.results[0]
        found = range_of(op, self.ranges)
        if found is None:
            return
        self.ranges[value] = found
        if value.type != self.long:
            if op.name == "arith.index_cast" and op.operands[0] in self.twins:
                with ir.InsertionPoint(op):
                    made = copied(op, [self.twins[op.operands[0]]]).result
                value.replace_all_uses_with(made)
                self.ranges[made] = found
            return
        if found[0] < _LEAST or found[1] > _MOST:
            return
        if op.name in ("arith.extsi", "arith.extui") and op.operands[0].type == self.short:
            self.twins[value] = op.operands[0]
            return
        operands = [self.twins.get(v, v) for v in op.operands]
        if any(v.type == self.long for v in operands):
            return
        with ir.InsertionPoint(op):
            if op.name == "arith.constant":
                attributes = {"value": ir.IntegerAttr.get(self.short, found[0])}
                self.twins[value] = ir.Operation.create(op.name, [self.short], [], attributes).result
            else:
                made = copied(op, operands, [self.short])
                if "overflowFlags" in made.attributes:  # LLVM then sees which addresses are adjacent
                    made.attributes["overflowFlags"] = ir.Attribute.parse("#arith.overflow<nsw>")
                self.twins[value] = made.result

    def _reader(self, op: ir.Operation) -> None:
        """Let an op that reads integers of 64 bits, but makes none, read their twins."""
        twins = [self.twins.get(v) for v in op.operands if v.type == self.long]
        if not twins or not all(twins):
            return
        if op.name == "arith.trunci" and op.results[0].type == self.short:
            op.results[0].replace_all_uses_with(twins[0])
        elif op.name in ("arith.sitofp", "arith.trunci") or (op.name == "arith.cmpi" and self._is_signed(op)):
            for at, operand in enumerate(op.operands):
                op.operands[at] = self.twins[operand]

    def _is_signed(self, op: ir.Operation) -> bool:
        positive = all(self.ranges[v][0] >= 0 for v in op.operands)
        return positive or ir.IntegerAttr(op.attributes["predicate"]).value in _SIGNED
