"""Shift of slices to the beginning of a packed argument, so that regions that read other parts become equal.

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
"""Slices move by multiples of this number of elements, so that their data stays as well aligned."""


def shift_slices(block: ir.Block, views: frozenset[str]) -> None:
    """Move the slices of each argument of ``block`` by the same distance, as far towards its beginning.

    Slices of views of an argument count, too. An argument is left unchanged if any other op reads it, or if
    its slices have several dims or shapes.
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
    """Yield the ops that read ``value`` or a view of it, without the views themselves."""
    for use in value.uses:
        op = use.owner.operation
        if op.name in views:
            yield from _readers(op.results[0], views)
        else:
            yield op


def _bounds(op: ir.Operation) -> tuple[int, int, int] | None:
    """Return the dim, the start and the end of a slice with constant bounds in range; None for other ops."""
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
    """Replace the bounds of a slice. Ops that made the old bounds are erased if nothing else reads them."""
    for number, bound in enumerate(bounds, 2):
        before = op.operands[number].owner.operation
        op.operands[number] = builder.argument(bound, "int", ir.InsertionPoint(op))
        if not any(True for _ in before.results[0].uses):
            before.erase()
