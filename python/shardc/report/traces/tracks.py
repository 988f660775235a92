"""A trace, in no tool's format: processes of tracks, each of slices one after the other, and of counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Value = str | int | float


@dataclass(frozen=True)
class Slice:
    """Something that takes time. ``category``: its kind, such as ``matmul``. ``about``: figures and names."""

    name: str
    start_s: float
    end_s: float
    category: str = ""
    about: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Track:
    """Slices in the order of time that do not overlap."""

    name: str
    slices: tuple[Slice, ...]


@dataclass(frozen=True)
class Counter:
    """Bytes from each moment on: (seconds, bytes), in the order of time."""

    name: str
    points: tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class Process:
    """One rank, predicted or measured. ``rank``: its number on the mesh."""

    name: str
    tracks: tuple[Track, ...]
    counters: tuple[Counter, ...] = ()
    rank: int = 0


def tracks_of(name: str, slices: Iterable[Slice]) -> list[Track]:
    """Slices that may overlap, on as few tracks as they need."""
    lanes: list[list[Slice]] = []
    for one in sorted(slices, key=lambda s: (s.start_s, s.end_s)):
        lane = next((lane for lane in lanes if lane[-1].end_s <= one.start_s), None)
        if lane is None:
            lanes.append(lane := [])
        lane.append(one)
    return [Track(name if not n else f"{name} ({n + 1})", tuple(lane)) for n, lane in enumerate(lanes)]
