"""What a pipeline's rank sent, and when it may let go of that: by what it receives from whom it sent to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import takewhile

from torch_mlir import ir

Pair = tuple[int, int]
"""The sender's and the receiver's number."""


def arrivals(functions: Sequence[ir.Operation]) -> dict[ir.Value, int]:
    """For messages that a rank receives: how many more of its own to the sender have arrived by then.

    ``functions``: the ranks' programs by number. The sender had run an action that reads those before it sent
    this one, so who waits for them then does not wait long. Messages of a pair are received in the order in
    which they are sent.
    """
    received: dict[Pair, list[ir.Value]] = defaultdict(list)
    taken: dict[Pair, list[int]] = defaultdict(list)
    for rank, function in enumerate(functions):
        for pair, value in _received(rank, function):
            received[pair].append(value)
        for pair, count in _taken(rank, function):
            taken[pair].append(count)
    found: dict[ir.Value, int] = {}
    for pair, values in received.items():
        before = 0
        for value, count in zip(values, taken[pair], strict=True):
            if count > before:
                found[value], before = count - before, count
    return found


def _received(rank: int, function: ir.Operation) -> Iterator[tuple[Pair, ir.Value]]:
    for op in _ops(function):
        if op.name == "pipe.receive":
            yield (ir.IntegerAttr(op.attributes["source"]).value, rank), op.results[0]


def _taken(rank: int, function: ir.Operation) -> Iterator[tuple[Pair, int]]:
    """Each message that a rank sends, with how many of those from its receiver an action has read by then."""
    given: dict[int, list[ir.Value]] = defaultdict(list)
    read: set[ir.Value] = set()
    for op in _ops(function):
        if op.name == "pipe.receive":
            given[ir.IntegerAttr(op.attributes["source"]).value].append(op.results[0])
        elif op.name == "pipe.action":
            read.update(_messages(op))
        elif op.name == "pipe.send":
            to = ir.IntegerAttr(op.attributes["to"]).value
            yield (rank, to), sum(1 for _ in takewhile(read.__contains__, given[to]))


def _messages(action: ir.Operation) -> Iterator[ir.Value]:
    """The tuples whose elements an action is given."""
    for packed in action.operands:
        for value in packed.owner.operation.operands:
            if isinstance(value, ir.OpResult) and value.owner.operation.name == "torch.prim.TupleUnpack":
                yield value.owner.operation.operands[0]


def _ops(function: ir.Operation) -> Iterator[ir.Operation]:
    return (op.operation for op in function.regions[0].blocks[0].operations)
