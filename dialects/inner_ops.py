"""The ops inside of an op."""

from collections.abc import Iterator

from torch_mlir import ir


def inner_ops(op: ir.Operation) -> Iterator[ir.Operation]:
    """All ops in an op's regions, each before those in its own."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from inner_ops(inner.operation)
