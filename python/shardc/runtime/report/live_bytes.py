"""Live bytes during a step on a CPU, from the counters of PyTorch's allocator and of the pool.

Neither counts the internal memory of libraries, such as oneDNN's scratchpads and Gloo's buffers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from operator import itemgetter

from torch.profiler import ProfilerActivity, profile

from ..kernels import pool

Sample = tuple[int, int]
"""Sample: nanoseconds since 1970, and bytes."""


class LiveBytes:
    """Growth of tensors' memory in a step.

    Another step must run between :meth:`start` and the measured one, because PyTorch knows the size of freed
    memory only if it observed the allocation.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.peak_call = 0
        """Number of the call with the peak."""
        self._pool: list[Sample] = []
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)

    def start(self) -> None:
        """Start counting."""
        self._profile.start()

    def sample(self) -> None:
        """Read the pool's counter.

        Call it at the start of the measured step, and before and after each call.
        """
        self._pool.append((time.time_ns(), pool.statistics()["used_bytes"]))

    def stop(self) -> None:
        """End the measurement, and set ``peak_bytes`` and ``peak_call``."""
        self.sample()
        self._profile.stop()
        self.peak_bytes, self.peak_call = _peak(sorted(_allocated(self._profile)), self._pool)


def _peak(allocated: list[Sample], pooled: list[Sample]) -> tuple[int, int]:
    """Return the peak of the sum, and its call. Within a call, the pool counts as its larger end."""
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
    """Yield PyTorch's allocated bytes before and after each change. Only differences are meaningful."""
    assert profiled.profiler is not None and profiled.profiler.kineto_results is not None
    events = list(profiled.profiler.kineto_results.experimental_event_tree())
    while events:
        event = events.pop()
        events += event.children
        names = ("total_allocated", "alloc_size")  # other events are no allocations
        total, size = (getattr(event.extra_fields, name, None) for name in names)
        if total is not None and size is not None:
            yield event.start_time_ns - 1, total - size
            yield event.start_time_ns, total
