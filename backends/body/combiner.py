"""Combiner of a reduction, read from its body.

It adds a term to a partial result, and joins partial results.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from torch_mlir import ir

from shardc.backends.body.graph import Generic

_IDENTITIES = {
    **{"addf": 0.0, "mulf": 1.0, "maximumf": -inf, "minimumf": inf, "maxnumf": -inf, "minnumf": inf},
    **{"addi": 0, "muli": 1, "maxui": 0, "minui": -1, "ori": 0, "andi": -1, "xori": 0},
}
"""Neutral elements that do not depend on the type; -1 has all bits set."""


@dataclass(frozen=True)
class Combiner:
    """``op`` joins two partial results; ``identity`` is its neutral element."""

    op: str
    identity: ir.Attribute


def combiners(generic: Generic) -> list[Combiner] | None:
    """Return the combiner of each result; None if any result is not a reduction of terms."""
    found = []
    for number in range(len(generic.inits)):
        join = generic.join(number)
        if join is None:
            return None
        found.append(Combiner(join.op.name, _identity(join.op.name, join.term.type)))
    return found


def _identity(name: str, type_: ir.Type) -> ir.Attribute:
    kind = name.removeprefix("arith.")
    if not isinstance(type_, ir.IntegerType):
        return ir.FloatAttr.get(type_, _IDENTITIES[kind])
    half = 1 << (type_.width - 1)
    bounds = {"maxsi": -half, "minsi": half - 1}
    return ir.IntegerAttr.get(type_, bounds[kind] if kind in bounds else _IDENTITIES[kind])


def combine(combiner: Combiner, a: ir.Value, b: ir.Value) -> ir.Value:
    """Join ``a`` and ``b``."""
    return ir.Operation.create(combiner.op, results=[a.type], operands=[a, b]).result
