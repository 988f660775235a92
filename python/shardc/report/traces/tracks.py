"""Traces independent of any tool's format: processes with tracks of consecutive slices, and counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Value = str | int | float


@dataclass(frozen=True)
class Slice:
    """Interval of time on a track. ``category``: its kind, such as ``matmul``. ``about``: its details."""

    name: str
    start_s: float
    end_s: float
    category: str = ""
    about: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Track:
    """Slices in order of time, without overlap."""

    name: str
    slices: tuple[Slice, ...]


@dataclass(frozen=True)
class Counter:
    """Bytes over time: points (seconds, bytes) in order of time. Each value holds until the next point."""

    name: str
    points: tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class Process:
    """Rank, predicted or measured. ``rank``: its position on the mesh."""

    name: str
    tracks: tuple[Track, ...]
    counters: tuple[Counter, ...] = ()
    rank: int = 0


def tracks_of(name: str, slices: Iterable[Slice]) -> list[Track]:
    """Distribute slices that may overlap over as few tracks as possible."""
    lanes: list[list[Slice]] = []
    for one in sorted(slices, key=lambda s: (s.start_s, s.end_s)):
        lane = next((lane for lane in lanes if lane[-1].end_s <= one.start_s), None)
        if lane is None:
            lanes.append(lane := [])
        lane.append(one)
    return [Track(name if not n else f"{name} ({n + 1})", tuple(lane)) for n, lane in enumerate(lanes)]
