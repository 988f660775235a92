"""Walk over the ops nested in an op's regions."""

from collections.abc import Iterator

from torch_mlir import ir


def inner_ops(op: ir.Operation) -> Iterator[ir.Operation]:
    """Yield all ops nested in an op's regions, in pre-order."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from inner_ops(inner.operation)
