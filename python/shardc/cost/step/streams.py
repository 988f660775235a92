"""Simulation of a device's streams: kernels in sequence, concurrent collectives, and the launching host.

Collectives start in program order, each on the stream of its mesh axes. The device waits for them at their
first use, as in the programs that shardc writes. The host does not wait for kernels; it is either ahead of
the device or behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple

from shardc.cost.origin import Assumed

HOST_NORM: Annotated[float, Assumed("host and device take turns in being behind within a micro-batch")] = 4.0
"""Norm that combines the host's and the device's seconds."""
HOST = "host"
"""Cause of waiting for the host, beside the names of mesh axes."""


@dataclass(frozen=True)
class Task:
    """A kernel, or, if ``axes`` are given, a collective over them. ``calls``: the host's calls for it."""

    kind: str
    seconds: float
    needs: tuple[int, ...] = ()
    axes: tuple[str, ...] = ()
    calls: int = 1


class Placed(NamedTuple):
    """When a task runs.

    ``stream``: axes of its stream; empty for that of kernels. ``waited_s``: how long that stream was idle
    before. ``latest``: the task among its needs that ends last.
    """

    start_s: float
    end_s: float
    stream: tuple[str, ...]
    waited_s: float
    latest: int | None


@dataclass(frozen=True)
class Played:
    """Result of a simulation.

    ``seconds``: total time. ``busy_s``: time by kind of kernel. ``waits_s``: time without a kernel by cause,
    an axis (several are joined by ``*``) or the host. ``calls``: calls of the host.
    """

    seconds: float = 0.0
    busy_s: Mapping[str, float] = field(default_factory=dict)
    waits_s: Mapping[str, float] = field(default_factory=dict)
    calls: float = 0.0

    def __add__(self, other: Played) -> Played:
        """Return the result of running one after the other."""
        busy_s, waits_s = add(self.busy_s, other.busy_s), add(self.waits_s, other.waits_s)
        return Played(self.seconds + other.seconds, busy_s, waits_s, self.calls + other.calls)

    def __mul__(self, times: float) -> Played:
        """Return the result of ``times`` runs in sequence."""
        busy_s, waits_s = ({k: times * s for k, s in of.items()} for of in (self.busy_s, self.waits_s))
        return Played(times * self.seconds, busy_s, waits_s, times * self.calls)

    def between(self, other: Played, more: int) -> Played:
        """Return this with ``more`` times what ``other`` has more."""
        return self + (other + self * -1.0) * more if more else self

    def with_host(self, call_s: float) -> Played:
        """Return the result if a host that takes ``call_s`` per call launches the tasks."""
        return self.waiting(HOST, behind_s(self.seconds, self.calls * call_s))

    def waiting(self, cause: str, seconds: float) -> Played:
        """Return the result with an additional wait."""
        waits_s = add(self.waits_s, {cause: seconds}) if seconds else self.waits_s
        return replace(self, seconds=self.seconds + seconds, waits_s=waits_s)


def behind_s(device_s: float, host_s: float) -> float:
    """Return the seconds that a device waits for its host.

    This is almost 0 if the host has far less to do, and the whole difference if it has far more.
    """
    longer_s = max(device_s, host_s)
    if not longer_s:
        return 0.0
    shares = (device_s / longer_s, host_s / longer_s)
    return longer_s * sum(share**HOST_NORM for share in shares) ** (1 / HOST_NORM) - device_s


def place(tasks: Sequence[Task], *, overlap: bool = True) -> list[Placed]:
    """Return when each task runs on a device that is idle before.

    ``overlap``: whether kernels run during a collective until its result is read; otherwise each waits for
    it.
    """
    placed: list[Placed] = []
    free_s: dict[tuple[str, ...], float] = {}
    for task in tasks:
        latest = max(task.needs, key=lambda n: placed[n].end_s, default=None)
        stream = task.axes if overlap else ()
        free = free_s.get(stream, 0.0)
        start_s = free if latest is None else max(free, placed[latest].end_s)
        free_s[stream] = start_s + task.seconds
        placed.append(Placed(start_s, free_s[stream], stream, start_s - free, latest))
    return placed


def play(tasks: Sequence[Task], *, overlap: bool = True) -> Played:
    """Simulate tasks on a device that is idle before, placed by :func:`place`."""
    busy_s: dict[str, float] = {}
    waits_s: dict[str, float] = {}
    ends_s: dict[tuple[str, ...], float] = {(): 0.0}
    for task, placed in zip(tasks, place(tasks, overlap=overlap), strict=True):
        ends_s[placed.stream] = placed.end_s
        if placed.stream:
            continue
        if placed.waited_s and placed.latest is not None:
            _wait(waits_s, tasks[placed.latest].axes, placed.waited_s)
        if task.axes:
            _wait(waits_s, task.axes, task.seconds)
        else:
            busy_s[task.kind] = busy_s.get(task.kind, 0.0) + task.seconds
    last = max(ends_s, key=lambda stream: ends_s[stream])
    if last:
        _wait(waits_s, last, ends_s[last] - ends_s[()])
    return Played(ends_s[last], busy_s, waits_s, sum(task.calls for task in tasks))


def add(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Add seconds by cause."""
    keys = dict.fromkeys([*first, *second])
    return {key: first.get(key, 0.0) + second.get(key, 0.0) for key in keys}


def _wait(waits_s: dict[str, float], axes: tuple[str, ...], seconds: float) -> None:
    name = "*".join(axes)
    waits_s[name] = waits_s.get(name, 0.0) + seconds
