"""How a reduction joins a new term to what it has: recognised in the body,
so that partial results can be joined too.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from torch_mlir import ir

from shardc.backends.body.graph import Generic

_FLOAT = {"arith.addf": 0.0, "arith.mulf": 1.0, "arith.maximumf": -inf, "arith.minimumf": inf,
          "arith.maxnumf": -inf, "arith.minnumf": inf}  # fmt: skip
_INTEGER = {"arith.addi": "zero", "arith.muli": "one", "arith.maxsi": "smallest", "arith.minsi": "largest",
            "arith.maxui": "zero", "arith.minui": "ones", "arith.ori": "zero", "arith.andi": "ones",
            "arith.xori": "zero"}  # fmt: skip


@dataclass(frozen=True)
class Combiner:
    """``op`` joins two partial results, of which ``identity`` is one that changes nothing."""

    op: str
    identity: ir.Attribute


def combiner_op(generic: Generic, result: int) -> ir.Operation | None:
    """The op of the body that joins the accumulator of ``result`` to the new term, if there is exactly one."""
    accumulator = generic.block.arguments[len(generic.inputs) + result]
    uses = list(accumulator.uses)
    last = list(generic.block.operations)[-1].operation
    joined = last.operands[result].owner
    if (
        len(uses) != 1
        or not isinstance(joined, ir.OpView | ir.Operation)
        or uses[0].owner.operation != joined.operation
    ):
        return None
    return joined.operation if joined.operation.name in _FLOAT | _INTEGER else None


def combiners(generic: Generic) -> list[Combiner] | None:
    """One for each result, or None if a result is not made by joining terms."""
    found = []
    for number in range(len(generic.inits)):
        op = combiner_op(generic, number)
        if op is None:
            return None
        found.append(Combiner(op.name, _identity(op.name, op.results[0].type)))
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
