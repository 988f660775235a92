"""Operands that a pipeline's actions take over, so that they are freed within the action.

A function's caller keeps its arguments alive. What an action reads for the last time, saved values of its
micro-batch and the old sums of gradients above all, is handed over in a list, which the action empties.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch_mlir import ir

from shardc.backends.torch.step import yielded
from shardc.dialects.dist.regions.loop_values import TUPLES
from shardc.dialects.dist.tuples import packed

ACTION = "pipe.action"
_PIPE = (ACTION, "pipe.send", "pipe.receive")


def handed(functions: Iterable[ir.Operation], sums: Mapping[str, int]) -> Mapping[str, frozenset[int]]:
    """Return stage -> positions of the operands that each of its actions reads for the last time.

    ``functions``: functions of the ranks. ``sums``: stage -> number of its last operands that are sums, which
    are always handed over.
    """
    found: dict[str, frozenset[int]] = {}
    for function in functions:
        block = function.regions[0].blocks[0]
        ops = [view.operation for view in block.operations]
        last = _last_reads(ops, block)
        for number, op in enumerate(ops):
            if op.name != ACTION:
                continue
            stage, operands = stage_of(op), packed(list(op.operands))
            first_sum = len(operands) - sums[stage]
            dying = frozenset(
                at
                for at, value in enumerate(operands)
                if at >= first_sum or (isinstance(value, ir.OpResult) and last[value] == number)
            )
            found[stage] = found[stage] & dying if stage in found else dying
    return found


def stage_of(action: ir.Operation) -> str:
    """Return the symbol of the stage that an action runs."""
    return ir.FlatSymbolRefAttr(action.attributes["stage"]).value


def split(values: Sequence[ir.Value], positions: frozenset[int]) -> tuple[list[ir.Value], list[ir.Value]]:
    """Return the values that are passed as usual, and those at ``positions``."""
    numbered = list(enumerate(values))
    return [v for at, v in numbered if at not in positions], [v for at, v in numbered if at in positions]


def _last_reads(ops: Sequence[ir.Operation], block: ir.Block) -> dict[ir.Value, int]:
    """Return the number of the last op that reads each value, also in a tuple."""
    found: dict[ir.Value, int] = {}
    for number, op in enumerate(ops):
        if op.name not in TUPLES:
            found |= dict.fromkeys(
                packed(list(op.operands)) if op.name in _PIPE else list(op.operands), number
            )
    return found | dict.fromkeys(yielded(block), len(ops))
