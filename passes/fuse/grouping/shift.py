"""Moves slices of a packed argument to its beginning, so that regions that read different parts become equal.

``dist-combine`` gathers weights of several layers into one buffer, from which each layer slices its own part.
Computations on a part do not depend on its position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.types import read_type
from shardc.passes.fuse.reading.values import owner_of

SLICE = "torch.aten.slice.Tensor"
ALIGNED = 64
"""Slices move by multiples of so many elements: their data is as well aligned as before."""


def shift_slices(block: ir.Block, views: frozenset[str]) -> None:
    """Move the slices of each argument of ``block``, seen through ``views``, as far towards its beginning as
    all of them can go: two that were apart, or had a part in common, stay so.

    An argument is left as it is if anything else reads it, or slices of more than one dim or shape do.
    """
    builder = CallBuilder(block)
    for argument in block.arguments:
        slices = list(_readers(argument, views - {SLICE}))
        known = [found for op in slices if (found := _bounds(op)) is not None]
        kinds = {(str(op.operands[0].type), dim) for op, (dim, _, _) in zip(slices, known, strict=False)}
        if len(known) == len(slices) and len(kinds) == 1:
            back = min(start for _, start, _ in known) // ALIGNED * ALIGNED
            for op, (_, start, end) in zip(slices, known, strict=True):
                _move(op, [start - back, end - back], builder)


def _readers(value: ir.Value, views: frozenset[str]) -> Iterator[ir.Operation]:
    """The ops that read ``value``, or a view of it, and are no such view."""
    for use in value.uses:
        op = use.owner.operation
        if op.name in views:
            yield from _readers(op.results[0], views)
        else:
            yield op


def _bounds(op: ir.Operation) -> tuple[int, int, int] | None:
    """The dim, the first index and the end of a slice by numbers within its tensor; None of anything else."""
    if op.name != SLICE:
        return None
    dim, start, end = (_number(value) for value in list(op.operands)[1:4])
    source = read_type(op.operands[0].type)
    if dim is None or start is None or end is None or source is None:
        return None
    size = source.shape[dim]
    return (dim, start, end) if isinstance(size, int) and 0 <= start <= end <= size else None


def _number(value: ir.Value) -> int | None:
    maker = owner_of(value)
    if maker is None or maker.name != "torch.constant.int":
        return None
    return ir.IntegerAttr(maker.attributes["value"]).value


def _move(op: ir.Operation, bounds: Sequence[int], builder: CallBuilder) -> None:
    """Give a slice other bounds. What made the old ones goes, unless something else reads it."""
    for number, bound in enumerate(bounds, 2):
        before = op.operands[number].owner.operation
        op.operands[number] = builder.argument(bound, "int", ir.InsertionPoint(op))
        if not any(True for _ in before.results[0].uses):
            before.erase()
