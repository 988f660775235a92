"""Integers of 64 bits that are computed from loop indices, as integers of 32 bits where their ranges allow.

A vector holds twice as many of these, and AVX2 has no conversion of 64-bit integers to floats. Ranges follow
from the bounds of loops. What is read from memory has none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

from torch_mlir import ir
from torch_mlir.dialects import scf

from shardc.backends.cpu.object_code.marks import copied
from shardc.dialects.inner_ops import inner_ops

Range = tuple[int, int]
"""Least and largest value."""
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1
_SIGNED = range(6)
"""Predicates of ``arith.cmpi`` that compare equality or signed integers."""


def _corners(function: Callable[[int, int], int]) -> Callable[[Range, Range], Range]:
    """Return the range of a function that has its extremes at ends of its operands' ranges."""

    def found(a: Range, b: Range) -> Range:
        ends = [function(x, y) for x, y in product(a, b)]
        return min(ends), max(ends)

    return found


def _quotient(a: Range, b: Range) -> Range | None:
    if b[0] <= 0:
        return None
    largest = max(abs(a[0]), abs(a[1])) // b[0]
    return (0 if a[0] >= 0 else -largest - 1), (0 if a[1] < 0 else largest)


def _rest(a: Range, b: Range) -> Range | None:
    if b[0] <= 0:
        return None
    most = min(b[1] - 1, max(abs(a[0]), abs(a[1])))
    return (0 if a[0] >= 0 else -most), most


def _unsigned(rule: Callable[[Range, Range], Range | None]) -> Callable[[Range, Range], Range | None]:
    return lambda a, b: rule(a, b) if a[0] >= 0 and b[0] >= 0 else None


_RANGES: dict[str, Callable[[Range, Range], Range | None]] = {
    "arith.addi": _corners(lambda x, y: x + y),
    "arith.subi": _corners(lambda x, y: x - y),
    "arith.muli": _corners(lambda x, y: x * y),
    "arith.minsi": _corners(min),
    "arith.maxsi": _corners(max),
    "arith.minui": _unsigned(_corners(min)),
    "arith.maxui": _unsigned(_corners(max)),
    "arith.divsi": _quotient,
    "arith.floordivsi": _quotient,
    "arith.remsi": _rest,
    "arith.divui": _unsigned(_quotient),
    "arith.remui": _unsigned(_rest),
}


def narrow_integers(module: ir.Module) -> None:
    """Compute such integers of ``module`` in 32 bits, too. Canonicalization removes unread ones."""
    with module.context, ir.Location.unknown():
        for function in module.body:
            _Narrow().visit(function.operation)


@dataclass(eq=False)
class _Narrow:
    """``ranges``: of indices and integers of 64 bits. ``twins``: equal values of 32 bits."""

    ranges: dict[ir.Value, Range] = field(default_factory=dict)
    twins: dict[ir.Value, ir.Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.short, self.long = (ir.IntegerType.get_signless(bits) for bits in (32, 64))

    def visit(self, function: ir.Operation) -> None:
        for op in list(inner_ops(function)):
            if isinstance(op.opview, scf.ForOp):
                low, high = (self.ranges.get(v) for v in list(op.operands)[:2])
                if low and high:
                    self.ranges[op.opview.induction_variable] = low[0], max(low[0], high[1] - 1)
            elif len(op.results) == 1 and op.results[0].type in (self.long, ir.IndexType.get()):
                self._integer(op)
            elif len(op.results) == 1:
                self._reader(op)

    def _integer(self, op: ir.Operation) -> None:
        """Find the range of an op's result, and add its twin if it is short."""
        value = op.results[0]
        found = self._range(op)
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

    def _range(self, op: ir.Operation) -> Range | None:
        known = [self.ranges.get(v) for v in op.operands]
        if op.name == "arith.constant":
            number = ir.IntegerAttr(op.attributes["value"]).value
            return number, number
        if op.name == "arith.select" and known[1] and known[2]:
            return min(known[1][0], known[2][0]), max(known[1][1], known[2][1])
        if op.name == "arith.extui" and op.operands[0].type == ir.IntegerType.get_signless(1):
            return 0, 1
        if not known or not all(known):
            return None
        (first, *others) = (r for r in known if r)
        if op.name == "arith.index_cast":
            return first
        if op.name == "math.absi":
            return (0 if first[0] <= 0 <= first[1] else min(map(abs, first))), max(map(abs, first))
        return _RANGES[op.name](first, *others) if op.name in _RANGES else None

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
