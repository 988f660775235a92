"""Linear forms of integers: sums of values times constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch_mlir import ir
from torch_mlir.dialects import arith

from shardc.backends.cpu.lanes.ranges import Range, Ranges

_NOT_EQUAL, _FIRST_UNSIGNED = 1, 6
"""Predicates of ``arith.cmpi``: 0 to 9 are eq, ne, slt, sle, sgt, sge, ult, ule, ugt, uge."""
_FIRST_LESS_SECOND, _IF_NEGATIVE = (2, 5, 6, 9), (2, 4, 6, 8)
"""Predicates that ask whether a - b is less than 0, not b - a; and those that hold if it is."""


@dataclass(frozen=True)
class Form:
    """``constant`` plus the sum of ``terms``, each a value times its factor, which is not 0."""

    constant: int = 0
    terms: Mapping[ir.Value, int] = field(default_factory=dict)

    def __add__(self, other: Form) -> Form:
        factors = dict(self.terms)
        for value, factor in other.terms.items():
            factors[value] = factors.get(value, 0) + factor
        return Form(self.constant + other.constant, {v: f for v, f in factors.items() if f})

    def __sub__(self, other: Form) -> Form:
        return self + other * -1

    def __mul__(self, factor: int) -> Form:
        return Form(self.constant * factor, {v: f * factor for v, f in self.terms.items()} if factor else {})

    def range(self, ranges: Ranges) -> Range | None:
        """Return the least and largest value, if those of all terms are known."""
        low = high = self.constant
        for value, factor in self.terms.items():
            if (found := ranges.get(value)) is None:
                return None
            ends = found[0] * factor, found[1] * factor
            low, high = low + min(ends), high + max(ends)
        return low, high

    def divided(self, by: int, ranges: Ranges) -> tuple[Form, Form] | None:
        """Return quotient and rest, if both are linear and the form is not negative."""
        whole = Form(
            self.constant // by, {v: f // by for v, f in self.terms.items() if f % by == 0 and v in ranges}
        )
        rest = self - whole * by
        within, all_ = rest.range(ranges), self.range(ranges)
        if within is None or all_ is None or within[0] < 0 or within[1] >= by or all_[0] < 0:
            return None
        return whole, rest

    def build(self, type_: ir.Type) -> ir.Value:
        """Write the form at the insertion point, as an index that is cast to ``type_``."""
        index = ir.IndexType.get()
        total = arith.constant(index, self.constant)
        for value, factor in self.terms.items():
            part = value if value.type == index else arith.index_cast(index, value)
            total = arith.addi(total, arith.muli(part, arith.constant(index, factor)))
        return total if type_ == index else arith.index_cast(type_, total)


def questions(op: ir.Operation, operands: list[Form], ranges: Ranges) -> list[Form]:
    """Return the forms whose signs decide an op: whether each is less than 0."""
    if len(op.operands) and op.operands[0].type == ir.IntegerType.get_signless(1):
        return []
    if op.name == "math.absi":
        return operands
    if op.name in ("arith.maxsi", "arith.minsi"):
        return [operands[0] - operands[1]]
    if op.name != "arith.cmpi":
        return []
    a, b = operands
    predicate = ir.IntegerAttr(op.attributes["predicate"]).value
    if predicate >= _FIRST_UNSIGNED:
        found = [form.range(ranges) for form in operands]
        if any(range_ is None or range_[0] < 0 for range_ in found):
            return []
    if predicate <= _NOT_EQUAL:
        return [a - b, b - a]
    return [a - b] if predicate in _FIRST_LESS_SECOND else [b - a]


def answer(op: ir.Operation, negative: list[bool]) -> bool:
    """Return the result of a comparison by whether each of its :func:`questions` is less than 0."""
    predicate = ir.IntegerAttr(op.attributes["predicate"]).value
    if predicate <= _NOT_EQUAL:
        return any(negative) == (predicate == _NOT_EQUAL)
    return negative[0] == (predicate in _IF_NEGATIVE)


def signs(asked: list[Form], ranges: Ranges) -> list[bool] | None:
    """Return whether each form is less than 0; None if one may be both."""
    found = list[bool]()
    for form in asked:
        range_ = form.range(ranges)
        if range_ is None or range_[0] < 0 <= range_[1]:
            return None
        found.append(range_[1] < 0)
    return found
