"""Cleanup of interleaved rows on a rank: one reshape replaces reshape, transpose of a dim of 1, reshape."""

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
    """Return a copy of the module in which one reshape replaces each group of three calls.

    Return ``module`` itself if it has no such group. Level 3 keeps the three calls, because a layout cannot
    express that a merged dim is stored by blocks. The executed program does not need that.
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
    """Yield each group of three calls in which a rank has one block, so that the transpose moves nothing."""
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
    """Return the op that makes a call's first operand if it is a call of ``targets``, else None."""
    value = op.operands[0]
    if not isinstance(value, ir.OpResult):
        return None
    maker = value.owner.operation
    return maker if _calls(maker, targets) else None


def _keeps_order(turn: ir.Operation, reader: CallReader) -> bool:
    """Return whether a transpose swaps adjacent dims, one of which has size 1."""
    spec = reader.read(turn).spec
    shape = spec.result.shape
    a, b = sorted((spec["dim0"] % len(shape), spec["dim1"] % len(shape)))
    return b == a + 1 and 1 in (shape[a], shape[b])
