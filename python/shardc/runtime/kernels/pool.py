"""Pool of memory for large CPU tensors: mapped once in huge pages, and reused when a tensor is freed.

New memory costs more than computing into it, because the operating system clears and maps it page by page
(0.5 us per KiB in a virtual machine, where a core copies a KiB in 0.1 us). ``malloc`` returns large blocks to
the system at once, so every result of every call has this cost. With the pool, only the first call has it.

The only difference to other tensors is that a pool tensor's storage cannot be resized. Mapped memory is
bounded by the peak use plus fragmentation. :func:`release` returns unused memory to the system.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

POOLED_BYTES = 1 << 17
"""Size from which on tensors come from the pool. ``malloc`` itself reuses the memory of smaller ones."""
SEGMENT_BYTES = 64 << 20
HUGE_PAGE_BYTES = 2 << 20
ALIGNMENT_BYTES = 64


class Pool:
    """Allocator of blocks in mapped segments. Any thread may take a block.

    When Python frees a tensor, its block goes into the bin of its size, for the next request of that size. If
    a bin is empty, all bins are emptied: their blocks become free regions, adjacent ones are merged, and the
    new block is taken from the smallest region that is large enough.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bins: dict[int, list[int]] = {}
        self._sizes: list[tuple[int, int]] = []
        self._ends: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._segments: list[_Segment] = []
        self._cut_bytes = self.peak_bytes = self.mapped_bytes = 0

    @property
    def used_bytes(self) -> int:
        """Bytes of the blocks in use."""
        return self._cut_bytes - sum(size * len(bin_) for size, bin_ in list(self._bins.items()))

    def bin(self, size: int) -> list[int]:
        """Return the addresses of free blocks of ``size`` bytes, a multiple of the alignment.

        Appending an address frees its block.
        """
        return self._bins.setdefault(size, [])

    def take(self, size: int) -> int:
        """Return the address of ``size`` (aligned) uninitialised bytes. Raises MemoryError."""
        try:
            return self.bin(size).pop()
        except IndexError:
            return self._cut(size)

    def _cut(self, size: int) -> int:
        with self._lock:
            self._collect()
            at = bisect.bisect_left(self._sizes, (size, 0))
            if at == len(self._sizes):
                self._map(size)
                at = bisect.bisect_left(self._sizes, (size, 0))
            found, address = self._sizes[at]
            self._remove(address, found)
            if found > size:
                self._add(address + size, found - size)
            self._cut_bytes += size
            self.peak_bytes = max(self.peak_bytes, self._cut_bytes)
        return address

    def release(self) -> int:
        """Unmap the segments without tensors; return their bytes."""
        with self._lock:
            self._collect()
            return self._unmap(self.mapped_bytes)

    def trim(self) -> None:
        """Return the pages of free regions to the system. Segments stay mapped."""
        with self._lock:
            self._collect()
            for segment in self._segments:
                end = segment.address + segment.size
                for address, size in self._starts.items():
                    if segment.address <= address < end:
                        segment.clear(address, size)

    def _collect(self) -> None:
        """Empty the bins. Other threads may use the bins without the lock: pop and append are atomic."""
        for size, bin_ in list(self._bins.items()):
            while bin_:
                try:
                    address = bin_.pop()
                except IndexError:  # another thread was faster
                    break
                self._cut_bytes -= size
                self._join(address, size)

    def _join(self, address: int, size: int) -> None:
        before = self._ends.get(address)
        if before is not None:
            self._remove(before, address - before)
            address, size = before, size + address - before
        after = self._starts.get(address + size)
        if after is not None:
            self._remove(address + size, after)
            size += after
        self._add(address, size)

    def _add(self, address: int, size: int) -> None:
        bisect.insort(self._sizes, (size, address))
        self._starts[address] = size
        self._ends[address + size] = address

    def _remove(self, address: int, size: int) -> None:
        del self._sizes[bisect.bisect_left(self._sizes, (size, address))]
        del self._starts[address], self._ends[address + size]

    def _map(self, size: int) -> None:
        """Map one more segment, after unmapping free segments, which were too small."""
        self._unmap(size)
        segment = _Segment.map(max(-(-size // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES, SEGMENT_BYTES))
        self._segments.append(segment)
        self.mapped_bytes += segment.size
        self._add(segment.address, segment.size)

    def _unmap(self, size: int) -> int:
        """Unmap free segments until ``size`` bytes are unmapped, or none is left; return the bytes."""
        given = 0
        for segment in [s for s in self._segments if self._starts.get(s.address) == s.size]:
            if given >= size:
                break
            self._remove(segment.address, segment.size)
            self._segments.remove(segment)
            given += segment.size
        self.mapped_bytes -= given
        return given


@dataclass(eq=False)
class _Segment:
    """Mapped memory that starts at a huge page. It is unmapped when nothing refers to ``memory``.

    The mapping is private. With Python's default, parent and child would share the memory after a fork.
    """

    memory: mmap.mmap
    address: int
    size: int

    def clear(self, address: int, size: int) -> None:
        """Return the whole pages of a region to the system."""
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        first, end = (
            n // mmap.PAGESIZE * mmap.PAGESIZE for n in (address + mmap.PAGESIZE - 1, address + size)
        )
        if end > first and hasattr(mmap, "MADV_DONTNEED"):
            self.memory.madvise(mmap.MADV_DONTNEED, first - base, end - first)

    @staticmethod
    def map(size: int) -> _Segment:
        """Map a new segment. Raises MemoryError if the system has no memory left."""
        try:
            memory = mmap.mmap(-1, size + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f"{size:,} bytes for tensors could not be mapped: {error.strerror}") from None
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        address = -(-start // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE, address - start, size)
        return _Segment(memory, address, size)


_pool = Pool()
# A fork waits until no other thread is changing the lists. Otherwise the child would inherit them in an
# inconsistent state.
_lock = _pool._lock
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@lru_cache(maxsize=1024)
def _block_type(size: int) -> type[ctypes.Array[ctypes.c_char]]:
    """Return the type of a pool block as a Python object, which lives as long as the tensor's storage."""
    free = _pool.bin(size)

    class Block(ctypes.c_char * size):  # type: ignore[misc]
        def __del__(self, give_back: Callable[[int], None] = free.append, place=ctypes.addressof) -> None:
            give_back(place(self))

    return Block


def empty(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, size_bytes: int) -> torch.Tensor:
    """Return a new CPU tensor in the pool, whose ``strides`` span ``size_bytes`` > 0. Raises MemoryError."""
    size = -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    block = _block_type(size).from_address(_pool.take(size))
    return torch.frombuffer(block, dtype=dtype).as_strided_(shape, strides)


def contiguous(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a new contiguous CPU tensor, from the pool if it is large. Raises MemoryError."""
    strides, size_bytes = _form(shape, dtype)
    if size_bytes < POOLED_BYTES:
        return torch.empty(shape, dtype=dtype)
    return empty(shape, strides, dtype, size_bytes)


@lru_cache(maxsize=4096)
def _form(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[tuple[int, ...], int]:
    """Return the strides, and the number of bytes that they span."""
    form = torch.empty(shape, dtype=dtype, device="meta")
    return form.stride(), form.nbytes


def statistics() -> dict[str, int]:
    """Return bytes in use, their peak, and bytes mapped."""
    return {name: getattr(_pool, name) for name in ("used_bytes", "peak_bytes", "mapped_bytes")}


def trim() -> None:
    """Return the pages of free memory to the system, and keep it mapped."""
    _pool.trim()


def release() -> int:
    """Return free memory to the system; return the number of bytes."""
    return _pool.release()
