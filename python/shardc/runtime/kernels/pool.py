"""Memory for large CPU tensors: mapped once in huge pages, kept when a tensor dies, and given to the next.

Fresh memory costs more than what is computed into it: the kernel of the operating system clears and maps it
page by page (0.5 us a KiB in a virtual machine, where a core copies a KiB in 0.1 us). ``malloc`` gives large
blocks back at once, so that every result of every call pays; here a result pays in its first call.

A tensor of the pool is like any other, only that its storage cannot be resized. What is mapped stays within
what was in use at once, and fragmentation; :func:`release` gives back what no tensor is in.
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
"""Smaller tensors come from ``malloc``, which keeps their memory."""
SEGMENT_BYTES = 64 << 20
HUGE_PAGE_BYTES = 2 << 20
ALIGNMENT_BYTES = 64


class Pool:
    """Blocks of mapped segments. Any thread may take one; they come back when Python finds a tensor dead.

    A block that comes back lies in the bin of its size, for the next of that size. Where a bin is empty, all
    that lies in bins becomes free memory again, neighbours one, and a block is cut from the smallest piece
    that is large enough.
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
        """Bytes of the blocks that are taken now."""
        return self._cut_bytes - sum(size * len(bin_) for size, bin_ in list(self._bins.items()))

    def bin(self, size: int) -> list[int]:
        """Addresses of free blocks of ``size`` bytes, a multiple of the alignment. Appending frees one."""
        return self._bins.setdefault(size, [])

    def take(self, size: int) -> int:
        """Return the address of ``size`` (aligned) bytes, whatever stands there. Raises MemoryError."""
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
        """Unmaps the segments that no tensor is in; their bytes."""
        with self._lock:
            self._collect()
            return self._unmap(self.mapped_bytes)

    def trim(self) -> None:
        """Give the pages of free pieces back to the system; what is mapped stays mapped."""
        with self._lock:
            self._collect()
            for segment in self._segments:
                end = segment.address + segment.size
                for address, size in self._starts.items():
                    if segment.address <= address < end:
                        segment.clear(address, size)

    def _collect(self) -> None:
        """Empty the bins. Threads without the lock may add and take meanwhile: pop and append are atomic."""
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
        """One more segment; segments that are free, and were too small, go for it."""
        self._unmap(size)
        segment = _Segment.map(max(-(-size // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES, SEGMENT_BYTES))
        self._segments.append(segment)
        self.mapped_bytes += segment.size
        self._add(segment.address, segment.size)

    def _unmap(self, size: int) -> int:
        """Unmap free segments until ``size`` bytes are given back, if there are so many; return how many."""
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
    """Mapped memory that starts at a huge page; unmapped when nothing refers to ``memory``.

    Private: Python's default stays one memory after a fork, into which parent and child would write.
    """

    memory: mmap.mmap
    address: int
    size: int

    def clear(self, address: int, size: int) -> None:
        """Give back the whole pages of a piece."""
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        first, end = (
            n // mmap.PAGESIZE * mmap.PAGESIZE for n in (address + mmap.PAGESIZE - 1, address + size)
        )
        if end > first and hasattr(mmap, "MADV_DONTNEED"):
            self.memory.madvise(mmap.MADV_DONTNEED, first - base, end - first)

    @staticmethod
    def map(size: int) -> _Segment:
        """Raises MemoryError if the system has no more."""
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
# A fork waits until no other thread is changing the lists: the child would have them as they were in the
# middle of it.
_lock = _pool._lock
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@lru_cache(maxsize=1024)
def _block_type(size: int) -> type[ctypes.Array[ctypes.c_char]]:
    """Memory of the pool as a Python object, whose end is that of the tensor's storage."""
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
    """A new contiguous CPU tensor; of the pool if it is large. Raises MemoryError."""
    strides, size_bytes = _form(shape, dtype)
    if size_bytes < POOLED_BYTES:
        return torch.empty(shape, dtype=dtype)
    return empty(shape, strides, dtype, size_bytes)


@lru_cache(maxsize=4096)
def _form(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[tuple[int, ...], int]:
    """Strides, and how many bytes they span."""
    form = torch.empty(shape, dtype=dtype, device="meta")
    return form.stride(), form.nbytes


def statistics() -> dict[str, int]:
    """Bytes in tensors now and at most so far, and bytes mapped."""
    return {name: getattr(_pool, name) for name in ("used_bytes", "peak_bytes", "mapped_bytes")}


def trim() -> None:
    """Gives the pages of memory that no tensor is in back to the system, and keeps their addresses."""
    _pool.trim()


def release() -> int:
    """Gives memory that no tensor is in back to the system; how many bytes."""
    return _pool.release()
