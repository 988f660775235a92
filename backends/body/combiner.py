"""How a reduction joins a new term to its partial result, read from the body: so partial results join."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from torch_mlir import ir

from shardc.backends.body.graph import Generic

_FLOAT = {
    "arith.addf": 0.0,
    "arith.mulf": 1.0,
    "arith.maximumf": -inf,
    "arith.minimumf": inf,
    "arith.maxnumf": -inf,
    "arith.minnumf": inf,
}
_INTEGER = {
    "arith.addi": "zero",
    "arith.muli": "one",
    "arith.maxsi": "smallest",
    "arith.minsi": "largest",
    "arith.maxui": "zero",
    "arith.minui": "ones",
    "arith.ori": "zero",
    "arith.andi": "ones",
    "arith.xori": "zero",
}


@dataclass(frozen=True)
class Combiner:
    """``op`` joins two partial results, of which ``identity`` is one that changes nothing."""

    op: str
    identity: ir.Attribute


def combiners(generic: Generic) -> list[Combiner] | None:
    """One for each result, or None if a result is not made by joining terms."""
    found = []
    for number in range(len(generic.inits)):
        join = generic.join(number)
        if join is None:
            return None
        found.append(Combiner(join.op.name, _identity(join.op.name, join.term.type)))
    return found


def _identity(name: str, type_: ir.Type) -> ir.Attribute:
    if name in _FLOAT:
        return ir.FloatAttr.get(type_, _FLOAT[name])
    width = ir.IntegerType(type_).width
    value = {
        "zero": 0,
        "one": 1,
        "ones": -1,
        "smallest": -(1 << (width - 1)),
        "largest": (1 << (width - 1)) - 1,
    }
    return ir.IntegerAttr.get(type_, value[_INTEGER[name]])


def combine(combiner: Combiner, a: ir.Value, b: ir.Value) -> ir.Value:
    """``a`` and ``b`` joined."""
    return ir.Operation.create(combiner.op, results=[a.type], operands=[a, b]).result
