"""Simulation of PyTorch's caching allocator, which reserves more GPU memory than a program's tensors hold.

The allocator rounds sizes and takes memory in segments; of a partly used segment only the rest is reused. The
simulation replays a program's own requests in their order.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from shardc.cost.origin import Measured, Published

_CODE = Published("c10/cuda/CUDACachingAllocator.cpp, its constants at the top")

_PLAYED = Measured("played on Llama 3.1 8B, zero3 on 8 and 128 devices: 11.8% and 14.4%", "November 2026")

ROUND_BYTES: Annotated[int, _CODE] = 512
"""Sizes are multiples of this; a small block is split if at least this much remains."""
SMALL_BYTES: Annotated[int, _CODE] = 1 << 20
"""Sizes up to this come from small segments; a large block is split if more than this remains."""
SMALL_SEGMENT_BYTES: Annotated[int, _CODE] = 2 << 20
"""Size of a segment for small blocks; other segments are multiples of this."""
MIDDLE_BYTES: Annotated[int, _CODE] = 10 << 20
"""Smaller sizes come from segments of ``MIDDLE_SEGMENT_BYTES``, larger ones from a segment of their own."""
MIDDLE_SEGMENT_BYTES: Annotated[int, _CODE] = 20 << 20

UNKNOWN_SLACK: Annotated[float, _PLAYED] = 0.13
"""Assumed ratio of reserved to held memory, minus 1, if a program's requests are not known."""


def reserved_bytes(requests: Iterable[tuple[int, int]], given: int, rounds: int = 2) -> int:
    """Return the bytes reserved after the program ran ``rounds`` times.

    ``requests``: (block, bytes), with negative bytes for a block that is freed. The first ``given`` requests
    are arguments, which stay allocated. The second run meets fragmented memory.
    """
    memory, blocks = CachingAllocator(), dict[int, _Block]()
    events = list(requests)
    for block, size in events[:given]:
        blocks[block] = memory.allocate(size)
    for _ in range(rounds):
        own: dict[int, _Block] = {}
        for block, size in events[given:]:
            if size > 0:
                own[block] = memory.allocate(size)
            elif block in own:
                memory.free(own.pop(block))
        for left in own.values():
            memory.free(left)
    return memory.reserved_bytes


@dataclass(slots=True, eq=False)
class _Block:
    """Part of a segment, with its neighbours."""

    size: int
    small: bool
    free: bool = False
    before: _Block | None = None
    after: _Block | None = None


class CachingAllocator:
    """Pools of one stream. Segments are never returned, as PyTorch does until a device is full."""

    def __init__(self) -> None:
        self.reserved_bytes = 0
        self._number = 0
        self._free: dict[bool, list[tuple[int, int, _Block]]] = {True: [], False: []}
        self._keys: dict[_Block, tuple[int, int, _Block]] = {}

    def allocate(self, size_bytes: int) -> _Block:
        size = -(-max(size_bytes, 1) // ROUND_BYTES) * ROUND_BYTES
        block = self._best(size, size <= SMALL_BYTES) or self._segment(size)
        remaining = block.size - size
        if remaining >= ROUND_BYTES if block.small else remaining > SMALL_BYTES:
            rest = _Block(remaining, block.small, before=block, after=block.after)
            if rest.after is not None:
                rest.after.before = rest
            block.size, block.after = size, rest
            self._add(rest)
        return block

    def free(self, block: _Block) -> None:
        """Free a block and merge it with free neighbours."""
        if block.before is not None and block.before.free:
            before = block.before
            self._take(before)
            before.size, before.after = before.size + block.size, block.after
            block = before
        if block.after is not None and block.after.free:
            self._take(block.after)
            block.size, block.after = block.size + block.after.size, block.after.after
        if block.after is not None:
            block.after.before = block
        self._add(block)

    def _best(self, size: int, small: bool) -> _Block | None:
        """Take the smallest free block that is large enough; of equal ones the first in memory."""
        pool = self._free[small]
        at = bisect_left(pool, (size,))
        if at == len(pool):
            return None
        block = pool[at][2]
        self._take(block)
        return block

    def _segment(self, size: int) -> _Block:
        if size <= SMALL_BYTES:
            taken = SMALL_SEGMENT_BYTES
        elif size < MIDDLE_BYTES:
            taken = MIDDLE_SEGMENT_BYTES
        else:
            taken = -(-size // SMALL_SEGMENT_BYTES) * SMALL_SEGMENT_BYTES
        self.reserved_bytes += taken
        return _Block(taken, size <= SMALL_BYTES)

    def _add(self, block: _Block) -> None:
        self._number += 1
        key = self._keys[block] = (block.size, self._number, block)
        block.free = True
        insort(self._free[block.small], key)

    def _take(self, block: _Block) -> None:
        key = self._keys.pop(block)
        pool = self._free[block.small]
        del pool[bisect_left(pool, key)]
        block.free = False
