"""Cleanup of interleaved rows on a rank: a reshape, a transpose of a dim of size 1, and a reshape become
one.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import CallReader, target_name
from shardc.passes.interleave.rows import RESHAPES
from shardc.passes.manager.program import copy_module, program_blocks
from shardc.passes.partition.local_call import CallWriter, type_of

_TURN = frozenset(("aten.transpose.int",))


def without_rows(module: ir.Module) -> ir.Module:
    """``module`` itself if nothing is left of them, else a copy in which one reshape stands for three calls.

    The layouts of level 3 cannot say that a merged dim is stored by blocks; what runs need not say it.
    """
    if not any(True for _ in _left(module)):
        return module
    made = copy_module(module)
    with made.context, ir.Location.unknown():
        builders = {block: CallBuilder(block) for block in program_blocks(made)}
        for first, turn, last in list(_left(made)):
            writer = CallWriter.at(builders[last.block], last)
            new = writer.call("aten.reshape", first.operands[0], type_of(last.results[0]).shape)
            last.results[0].replace_all_uses_with(new)
            for op in (last, turn, first):
                if not any(True for _ in op.results[0].uses):
                    op.erase()
    return made


def _left(module: ir.Module) -> Iterator[tuple[ir.Operation, ir.Operation, ir.Operation]]:
    """The three calls, wherever a rank has one block."""
    reader = CallReader()
    for block in program_blocks(module):
        for last in (view.operation for view in block.operations):
            turn = _maker(last, _TURN) if _calls(last, RESHAPES) else None
            first = None if turn is None else _maker(turn, RESHAPES)
            if turn is not None and first is not None and _keeps_order(turn, reader):
                yield first, turn, last


def _calls(op: ir.Operation, targets: frozenset[str]) -> bool:
    return op.name.startswith("torch.") and target_name(op) in targets


def _maker(op: ir.Operation, targets: frozenset[str]) -> ir.Operation | None:
    """What makes the first operand of a call, if it is one of ``targets``."""
    value = op.operands[0]
    if not isinstance(value, ir.OpResult):
        return None
    maker = value.owner.operation
    return maker if _calls(maker, targets) else None


def _keeps_order(turn: ir.Operation, reader: CallReader) -> bool:
    """Whether a transpose swaps neighbours of which one has one element."""
    spec = reader.read(turn).spec
    shape = spec.result.shape
    a, b = sorted((spec["dim0"] % len(shape), spec["dim1"] % len(shape)))
    return b == a + 1 and 1 in (shape[a], shape[b])
