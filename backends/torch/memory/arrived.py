"""When a pipeline's rank may free its sent messages: derived from the messages that it receives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import takewhile

from torch_mlir import ir

from shardc.backends.torch.memory.receives import is_evicted

Pair = tuple[int, int]
"""Numbers of sender and receiver."""


def arrivals(functions: Sequence[ir.Operation]) -> dict[ir.Value, int]:
    """Return, for a received message, how many more of the rank's own messages to its sender have arrived.

    ``functions``: the ranks' programs by number. The sender ran an action that reads those messages before it
    sent this one, so a wait for them is short. Messages between two ranks are received in order. Those with
    evicted activations are left out: each is waited for by itself.
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
    """Yield each message that a rank sends, with how many messages of its receiver were read by then."""
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
    """Yield the tuples whose elements an action gets."""
    for packed in action.operands:
        for value in packed.owner.operation.operands:
            if isinstance(value, ir.OpResult) and value.owner.operation.name == "torch.prim.TupleUnpack":
                yield value.owner.operation.operands[0]


def _ops(function: ir.Operation) -> Iterator[ir.Operation]:
    ops = (op.operation for op in function.regions[0].blocks[0].operations)
    return (op for op in ops if op.name not in ("pipe.send", "pipe.receive") or not is_evicted(op))
