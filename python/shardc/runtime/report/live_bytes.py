"""The bytes that live while a step runs on a CPU, by the counters of PyTorch's allocator and of the pool.

Memory that a library takes for itself (oneDNN's scratchpads, Gloo's buffers) is in neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise

from torch.profiler import ProfilerActivity, profile

from ..kernels import pool
from ..torch_private import EventType

Sample = tuple[int, int]
"""Nanoseconds since 1970, and bytes."""


class LiveBytes:
    """How far the memory of tensors grows over that at the start of a block.

    ``sample`` is to be called between calls of the program: the pool's count is read there.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._pool: list[Sample] = []

    def sample(self) -> None:
        self._pool.append((time.time_ns(), pool.statistics()["used_bytes"]))

    def measure(self, run: Callable[[], object]) -> None:
        """Run what is measured, and set ``peak_bytes``."""
        self.sample()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            run()
            self.sample()
        self.peak_bytes = _peak(sorted(_allocated(profiled)), self._pool)


def _peak(allocated: list[Sample], pooled: list[Sample]) -> int:
    """The most of both at once. Between two samples the pool has what it has at either, if more."""
    start, most, now, at = pooled[0][1], 0, 0, 0
    for (_, before), (end_ns, after) in pairwise(pooled):
        here = now
        while at < len(allocated) and allocated[at][0] <= end_ns:
            now = allocated[at][1]
            here, at = max(here, now), at + 1
        most = max(most, here + max(before, after) - start)
    return most


def _allocated(profiled: profile) -> Iterator[Sample]:
    """PyTorch's tensors over those at the start, behind each change."""
    assert profiled.profiler is not None and profiled.profiler.kineto_results is not None
    events = list(profiled.profiler.kineto_results.experimental_event_tree())
    found: list[tuple[int, int, int]] = []
    while events:
        event = events.pop()
        events += event.children
        if event.tag == EventType.Allocation:
            fields = event.extra_fields
            found.append((event.start_time_ns, fields.total_allocated, fields.alloc_size))
    if found:
        _, total, size = min(found)
        before = total - size
        yield from ((at_ns, total - before) for at_ns, total, _ in found)
