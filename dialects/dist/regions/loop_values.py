"""The values of a ``dist.loop`` one by one: its groups are tuples in the IR."""

from dataclasses import dataclass

from torch_mlir import ir

from shardc.dialects.dist.tuples import packed, unpacked

TUPLES = frozenset(("torch.prim.TupleConstruct", "torch.prim.TupleUnpack"))
"""Ops that only group values for a loop; no line of the program stands for them."""


@dataclass(frozen=True)
class LoopValues:
    """What goes into a loop, what its body hands on, and what comes out, each in order.

    ``following`` are the next values of the carried ones and ``rows`` those to be stacked, both inside the
    body; ``carried`` and ``stacked`` are the results. A result that the program never takes apart is missing
    from both.
    """

    inits: list[ir.Value]
    captures: list[ir.Value]
    following: list[ir.Value]
    rows: list[ir.Value]
    carried: list[ir.Value]
    stacked: list[ir.Value]


def loop_values(op: ir.Operation) -> LoopValues:
    """The values of a ``dist.loop``, by group."""
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
