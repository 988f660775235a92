"""Ledger of a program's memory: what is alive now, all allocations and frees so far, and their peak."""

from __future__ import annotations

import weakref

import torch

from shardc.backends.torch.memory.curve import Log
from shardc.backends.torch.memory.kinds import Block
from shardc.runtime.torch_private import storage_address


class Ledger:
    """Live bytes, from when memory is recorded until Python frees it.

    ``log``: allocations and frees, in order. ``blocks``: all blocks so far. ``most``: bytes at the peak;
    ``line``: the program's line that made the last block by then; ``made_by_then``: number of blocks made.
    """

    def __init__(self) -> None:
        self.log = Log()
        self.blocks: list[Block] = []
        self.now = self.most = self.line = self.made_by_then = 0
        self._live: dict[int, tuple[Block, weakref.ref[torch.UntypedStorage]]] = {}

    def block(self, storage: torch.UntypedStorage) -> Block | None:
        """Return the block of a live storage; None if it is not counted."""
        known = self._live.get(storage_address(storage))
        return None if known is None else known[0]

    def make(self, size_bytes: int, line: int) -> Block:
        """Count a new block that is made at a line of the program."""
        return self._count(Block(size_bytes, line, number=len(self.blocks)))

    def make_like(self, block: Block) -> Block:
        """Count a new block that is made and read where another one was."""
        return self._count(Block(block.size_bytes, block.made, block.read, number=len(self.blocks)))

    def _count(self, block: Block) -> Block:
        self.blocks.append(block)
        self.log.add(block.size_bytes, block.made, id(block))
        self.now += block.size_bytes
        if self.now > self.most:
            self.most, self.line, self.made_by_then = self.now, block.made, len(self.blocks)
        return block

    def free(self, block: Block) -> None:
        """Count the end of a block."""
        block.outlived = len(self.blocks)
        self.log.add(-block.size_bytes, block.made, id(block))
        self.now -= block.size_bytes

    def keep(self, storage: torch.UntypedStorage, block: Block) -> None:
        """Free a block when its storage is freed."""
        key = storage_address(storage)
        self._live[key] = (block, weakref.ref(storage, lambda _: self.free(self._live.pop(key)[0])))
