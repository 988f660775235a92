"""Device mesh of a program: coordinates of ranks on (sub-)axes, and groups of ranks.

A (sub-)axis is a triple ``(name, pre, size)``: ``size`` ways of the mesh axis ``name``, below ``pre`` more
major ways. Ranks number the space axes in row-major order. The arithmetic is that of the compiler's
``dist.mesh``; it is repeated here because the runtime does not import the compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

Axis = tuple[str, int, int]
Axes = tuple[Axis, ...]
SHARE = "/share"
"""Suffix of a space axis's name for the time axis whose iterations are shared among its ranks."""


@dataclass(frozen=True)
class Mesh:
    """Mesh: names and sizes of its space axes, the most major first, and of its time axes, which are loops.

    ``trips``: for a time axis ``AXIS/share``, the number of iterations of the rank at each position on
    ``AXIS``.
    """

    space: tuple[tuple[str, int], ...]
    time: tuple[tuple[str, int], ...] = ()
    trips: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @staticmethod
    def read(axes: Iterable[dict]) -> Mesh:
        """Read the manifest's ``[{"name": ..., "size": ..., "kind": "space" | "time"}, ...]``."""
        rows = [*axes]
        space, time = (
            tuple((a["name"], a["size"]) for a in rows if a["kind"] == kind) for kind in ("space", "time")
        )
        return Mesh(space, time, tuple((a["name"], tuple(a["trips"])) for a in rows if "trips" in a))

    @property
    def world_size(self) -> int:
        return prod(size for _, size in self.space)

    def describe(self) -> str:
        return " x ".join(f"{name} {size}" for name, size in self.space)

    def share(self, rank: int, name: str) -> tuple[int, int, int]:
        """Return a rank's iterations of a time axis as (first, end), and the number of all iterations."""
        trips, axis = dict(self.trips)[name], name.removesuffix(SHARE)
        place = self.coordinate(rank, (axis, 1, dict(self.space)[axis]))
        return sum(trips[:place]), sum(trips[: place + 1]), sum(trips)

    def is_time(self, axis: Axis) -> bool:
        return any(name == axis[0] for name, _ in self.time)

    def coordinate(self, rank: int, axis: Axis) -> int:
        """Return the coordinate of ``rank`` on a space (sub-)axis. Raises KeyError for an unknown name."""
        name, pre, size = axis
        stride = 1
        for other, ways in reversed(self.space):
            if other == name:
                return rank // stride % ways // (ways // (pre * size)) % size
            stride *= ways
        raise KeyError(name)

    def peers(self, rank: int, axes: Axes) -> tuple[int, ...]:
        """Return the group of ``rank`` in the :meth:`partition` over ``axes``, without making the others."""
        steps = [(self._step(axis), axis[2]) for axis in axes]
        first = rank - sum(self.coordinate(rank, a) * step for a, (step, _) in zip(axes, steps, strict=True))
        found = [first]
        for step, size in steps:
            found = [peer + place * step for peer in found for place in range(size)]
        return tuple(found)

    def _step(self, axis: Axis) -> int:
        """Return the difference of neighbouring ranks' numbers on a space (sub-)axis."""
        name, pre, size = axis
        stride = 1
        for other, ways in reversed(self.space):
            if other == name:
                return stride * (ways // (pre * size))
            stride *= ways
        raise KeyError(name)

    def index(self, rank: int, axes: Axes) -> int:
        """Return the rank's index in the product of ``axes``, the first being the most major."""
        place = 0
        for axis in axes:
            place = place * axis[2] + self.coordinate(rank, axis)
        return place

    def partition(self, axes: Axes) -> list[tuple[int, ...]]:
        """Return all ranks in groups that differ only on ``axes``, each group in the order of its index."""
        rest = [p for p in self.finest(axes) if not any(inside(p, a) for a in axes)]
        groups: dict[tuple[int, ...], list[int]] = {}
        for rank in range(self.world_size):
            groups.setdefault(tuple(self.coordinate(rank, a) for a in rest), []).append(rank)
        return [tuple(sorted(g, key=lambda r: self.index(r, axes))) for g in groups.values()]

    def finest(self, used: Iterable[Axis]) -> Axes:
        """Return the space axes in mesh order, split into sub-axes at all boundaries of ``used`` axes."""
        cuts: dict[str, set[int]] = {}
        for name, pre, size in used:
            cuts.setdefault(name, set()).update((pre, pre * size))
        return tuple(part for name, ways in self.space for part in _parts(name, ways, cuts.get(name, set())))


def _parts(name: str, ways: int, cuts: set[int]) -> list[Axis]:
    bounds = sorted({1, ways} | cuts)
    if len(bounds) == 1:
        return [(name, 1, 1)]
    return [(name, low, high // low) for low, high in pairwise(bounds)]


def inside(part: Axis, axis: Axis) -> bool:
    """Return True if ``part`` is a part of ``axis``, or all of it."""
    return part[0] == axis[0] and axis[1] <= part[1] and part[1] * part[2] <= axis[1] * axis[2]


def ways(axes: Sequence[Axis]) -> int:
    """Return the number of blocks into which ``axes`` split a dim."""
    return prod(size for _, _, size in axes)
