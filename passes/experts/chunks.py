"""Order of calls on chunks of dispatched rows: experts compute a chunk while the next one is sent.

Calls that wait for a chunk are marked while buffers are written, and are ordered afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import pairwise

from torch_mlir import ir

from shardc.passes.manager.attributes import drop_attributes, phase_of

CHUNK = "dist.chunk"
"""Attribute of a call that waits for a chunk's exchange: the numbers of the routing and the chunk.

Calls that wait for all chunks have the number of chunks instead of a chunk's number.
"""
_AT_ONCE = -1
"""Number of calls that wait for no exchange."""

Call = partial[ir.Operation]
"""Builder of a call with a bound location, insertion point and attributes."""


def in_chunk(call: Call, routing: int, number: int) -> Call:
    """Return ``call`` for calls that wait for the exchange of chunk ``number`` of a routing."""
    context = call.keywords["loc"].context
    mark = ir.DenseI64ArrayAttr.get([routing, number], context)
    return partial(call, attributes={**call.keywords["attributes"], CHUNK: mark})


def order_chunks(block: ir.Block) -> None:
    """Move all calls of a chunk before those of the next, in each phase of each routing; drop the marks.

    Calls that wait for no chunk, such as the exchanges, come first. So later chunks are sent while experts
    compute earlier ones.
    """
    ops = [o.operation for o in block.operations]
    groups: dict[tuple[int, str], dict[int, int]] = {}
    for place, op in enumerate(ops):
        if CHUNK in op.attributes:
            routing, number = ir.DenseI64ArrayAttr(op.attributes[CHUNK])
            groups.setdefault((routing, phase_of(op)), {})[place] = number
            drop_attributes(op, CHUNK)
    for chunk_of in groups.values():
        first, last = min(chunk_of), max(chunk_of)
        numbers = [chunk_of.get(place, _AT_ONCE) for place in range(first, last + 1)]
        _sort(ops[first : last + 1], numbers)


def _sort(ops: Sequence[ir.Operation], numbers: Sequence[int]) -> None:
    """Sort adjacent ops topologically; among ready ops, by number and then by their former order."""
    places: dict[ir.Value, int] = {result: place for place, op in enumerate(ops) for result in op.results}
    readers: list[list[int]] = [[] for _ in ops]
    waits = [0] * len(ops)
    for place, op in enumerate(ops):
        for source in {places[operand] for operand in op.operands if operand in places}:
            readers[source].append(place)
            waits[place] += 1
    ready = [(numbers[place], place) for place, count in enumerate(waits) if not count]
    heapify(ready)
    order: list[ir.Operation] = []
    while ready:
        _, place = heappop(ready)
        order.append(ops[place])
        for reader in readers[place]:
            waits[reader] -= 1
            if not waits[reader]:
                heappush(ready, (numbers[reader], reader))
    anchor = ops[0]
    order[0].move_before(anchor)
    for before, op in pairwise(order):
        op.move_after(before)
