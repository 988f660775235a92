"""The single values of a ``dist.loop``, whose groups of values are tuples in the IR."""

from dataclasses import dataclass

from torch_mlir import ir

from shardc.dialects.dist.tuples import packed, unpacked

TUPLES = frozenset(("torch.prim.TupleConstruct", "torch.prim.TupleUnpack"))
"""Ops that only group values for a loop; the emitted program has no line for them."""


@dataclass(frozen=True)
class LoopValues:
    """The operands of a loop, the values that its body yields, and its results, each in order.

    ``following`` are the next carried values and ``rows`` the values to stack, both inside the body;
    ``carried`` and ``stacked`` are the results. If the program never unpacks a result tuple, its list is
    empty.
    """

    inits: list[ir.Value]
    captures: list[ir.Value]
    following: list[ir.Value]
    rows: list[ir.Value]
    carried: list[ir.Value]
    stacked: list[ir.Value]


def loop_values(op: ir.Operation) -> LoopValues:
    """Return the values of a ``dist.loop``, by group."""
    inits, captures = _groups(op)
    following, rows = _groups(list(op.regions[0].blocks[0].operations)[-1].operation)
    results = iter(op.results)
    sizes = op.attributes["resultSegmentSizes"]
    carried, stacked = (unpacked([next(results) for _ in range(size)]) for size in sizes)
    return LoopValues(inits, captures, following, rows, carried, stacked)


def _groups(op: ir.Operation) -> tuple[list[ir.Value], list[ir.Value]]:
    operands = iter(op.operands)
    sizes = op.attributes["operandSegmentSizes"]
    first, second = (packed([next(operands) for _ in range(size)]) for size in sizes)
    return first, second
