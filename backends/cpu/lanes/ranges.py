"""Ranges of integers that are computed from loop indices. What is read from memory has none."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from torch_mlir import ir
from torch_mlir.dialects import scf

from shardc.dialects.inner_ops import inner_ops

Range = tuple[int, int]
"""Least and largest value."""
Ranges = dict[ir.Value, Range]


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


def ranges_in(function: ir.Operation) -> Ranges:
    """Return the ranges of the indices and integers in ``function`` that are known."""
    found: Ranges = {}
    for op in inner_ops(function):
        if isinstance(op.opview, scf.ForOp):
            add_index(op.opview, found)
        elif len(op.results) == 1 and (range_ := range_of(op, found)):
            found[op.results[0]] = range_
    return found


def add_index(loop: scf.ForOp, ranges: Ranges) -> None:
    """Add the range of a loop's index to ``ranges``, if its bounds have ranges."""
    low, high = (ranges.get(v) for v in list(loop.operands)[:2])
    if low and high:
        ranges[loop.induction_variable] = low[0], max(low[0], high[1] - 1)


def range_of(op: ir.Operation, ranges: Ranges) -> Range | None:
    """Return the range of an op's single result, by those of its operands. None if the result may wrap."""
    found = _exact(op, ranges)
    return found if found is not None and fits(found, op.results[0].type) else None


def fits(range_: Range, type_: ir.Type) -> bool:
    """Return whether a signed integer of ``type_``, or a bool as 0 or 1, holds all numbers of a range."""
    bits = ir.IntegerType(type_).width if isinstance(type_, ir.IntegerType) else 64
    low = 0 if bits == 1 else -(1 << (bits - 1))
    return low <= range_[0] and range_[1] <= max(1, -low - 1)


def _exact(op: ir.Operation, ranges: Ranges) -> Range | None:
    """Return the range of the result as it were without a limit of bits."""
    if not isinstance(op.results[0].type, ir.IntegerType | ir.IndexType):
        return None
    known = [ranges.get(v) for v in op.operands]
    if op.name == "arith.constant":
        number = ir.IntegerAttr(op.attributes["value"]).value
        number = abs(number) if op.results[0].type == _bool() else number
        return number, number
    if op.name == "arith.select" and known[1] and known[2]:
        return min(known[1][0], known[2][0]), max(known[1][1], known[2][1])
    if op.name == "arith.extui" and op.operands[0].type == _bool():
        return 0, 1
    if _bool() in (op.results[0].type, op.operands[0].type if len(op.operands) else None):
        return None
    if not known or not all(known):
        return None
    (first, *others) = (r for r in known if r)
    if op.name in ("arith.index_cast", "arith.extsi", "arith.trunci"):
        return first
    if op.name == "math.absi":
        return (0 if first[0] <= 0 <= first[1] else min(map(abs, first))), max(map(abs, first))
    return _RANGES[op.name](first, *others) if op.name in _RANGES else None


def _bool() -> ir.Type:
    return ir.IntegerType.get_signless(1)
