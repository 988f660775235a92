"""Symmetric memory of ranks that are threads of one process: PyTorch's kernels and barriers, on the CPU."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

TIMEOUT_S = 20


class FakeMemory:
    """``torch.distributed._symmetric_memory`` and ``torch.ops.symm_mem`` for ``size`` threads of one group.

    ``wrong``: sums are off by one. What a rank reads of another's buffer without a barrier between may be
    old.
    """

    def __init__(self, size: int, wrong: bool = False) -> None:
        self.size, self.wrong = size, wrong
        self.buffers: list[Tensor | None] = [None] * size
        self.calls: list[str] = []
        self._barrier = threading.Barrier(size, timeout=TIMEOUT_S)
        self.local = threading.local()

    # the module

    def enable_symm_mem_for_group(self, name: str) -> None:
        assert name == "fake"

    def empty(self, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.full((size,), 0xFF, dtype=dtype)  # NaN, and what is no number

    def rendezvous(self, buffer: Tensor, name: str) -> Any:
        rank = self.local.rank
        self.buffers[rank] = buffer
        self.wait()
        return SimpleNamespace(rank=rank, world_size=self.size, get_buffer=self.get_buffer, barrier=self.wait)

    def wait(self) -> None:
        self._barrier.wait()

    def get_buffer(self, rank: int, sizes: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        (count,) = sizes
        return self.buffers[rank][: count * dtype.itemsize].view(dtype)

    # the kernels

    def one_shot_all_reduce(self, mine: Tensor, op: str, name: str) -> Tensor:
        self._note("one_shot", mine, op)
        self.wait()
        made = self._sum(mine)
        self.wait()
        return made

    def two_shot_all_reduce_(self, mine: Tensor, op: str, name: str) -> Tensor:
        self._note("two_shot", mine, op)
        self.wait()
        made = self._sum(mine)
        self.wait()
        mine.copy_(made)
        self.wait()
        return mine

    def _note(self, name: str, mine: Tensor, op: str) -> None:
        assert op == "sum" and mine.is_contiguous() and mine.storage_offset() == 0
        assert mine.numel() * mine.element_size() % (16 * self.size) == 0
        if self.local.rank == 0:
            self.calls.append(name)

    def _sum(self, mine: Tensor) -> Tensor:
        total = self.get_buffer(0, (mine.numel(),), mine.dtype).clone()
        for rank in range(1, self.size):
            total += self.get_buffer(rank, (mine.numel(),), mine.dtype)
        return total + self.wrong


class FakeStreams:
    """``torch.cuda``: streams that are done at once."""

    class Event:
        recorded = False

        def record(self, stream: Any) -> None:
            self.recorded = True

    class Stream:
        def __init__(self, device: Any = None) -> None:
            self.waited: list[Any] = []

        def wait_stream(self, other: Any) -> None:
            self.waited.append(other)

        def wait_event(self, event: Any) -> None:
            assert event.recorded, "nobody would ever be done"
            self.waited.append(event)

    def __init__(self) -> None:
        self._current = self.Stream()
        self.peers = True

    def current_stream(self) -> Any:
        return self._current

    def stream(self, stream: Any) -> Any:
        return nullcontext()

    def current_device(self) -> int:
        return 0

    def can_device_access_peer(self, own: int, other: int) -> bool:
        return self.peers
