"""The bytes that live while a step runs on a CPU, by the counters of PyTorch's allocator and of the pool.

Memory that a library takes for itself (oneDNN's scratchpads, Gloo's buffers) is in neither.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from operator import itemgetter

from torch.profiler import ProfilerActivity, profile

from ..kernels import pool

Sample = tuple[int, int]
"""Nanoseconds since 1970, and bytes."""


class LiveBytes:
    """How far the memory of tensors grows in a step over that before it.

    A step must run between :meth:`start` and the one that is measured: PyTorch knows the size of what is
    given back only where it saw it taken.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.peak_call = 0
        """The number of the call in which the peak is reached."""
        self._pool: list[Sample] = []
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)

    def start(self) -> None:
        """Begin to count."""
        self._profile.start()

    def sample(self) -> None:
        """Read the pool's count: where what is measured begins, and before and behind each of its calls."""
        self._pool.append((time.time_ns(), pool.statistics()["used_bytes"]))

    def stop(self) -> None:
        """End what is measured, and set ``peak_bytes`` and ``peak_call``."""
        self.sample()
        self._profile.stop()
        self.peak_bytes, self.peak_call = _peak(sorted(_allocated(self._profile)), self._pool)


def _peak(allocated: list[Sample], pooled: list[Sample]) -> tuple[int, int]:
    """The most of both at once, and in which call: there the pool has what it has before or behind it."""
    (start_ns, start), most = pooled[0], (0, 0)
    at = next((n for n, (at_ns, _) in enumerate(allocated) if at_ns > start_ns), len(allocated))
    given = now = allocated[max(at - 1, 0)][1] if allocated else 0
    for place, ((_, before), (end_ns, after)) in enumerate(pairwise(pooled)):
        here = now
        while at < len(allocated) and allocated[at][0] <= end_ns:
            now = allocated[at][1]
            here, at = max(here, now), at + 1
        most = max(most, (here - given + max(before, after) - start, place // 2), key=itemgetter(0))
    return most


def _allocated(profiled: profile) -> Iterator[Sample]:
    """What PyTorch has allocated before and behind each change. It may begin anywhere: differences count."""
    assert profiled.profiler is not None and profiled.profiler.kineto_results is not None
    events = list(profiled.profiler.kineto_results.experimental_event_tree())
    while events:
        event = events.pop()
        events += event.children
        names = ("total_allocated", "alloc_size")  # others are no allocations
        total, size = (getattr(event.extra_fields, name, None) for name in names)
        if total is not None and size is not None:
            yield event.start_time_ns - 1, total - size
            yield event.start_time_ns, total
