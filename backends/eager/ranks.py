"""Simulated ranks of a run: their coordinates on the mesh, and on the time axes of running loops."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch_mlir import ir

from shardc.dialects.dist.axis import Axis, shared_axis
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Axes, ShardingCodec

T = TypeVar("T")
Values = list[Any]
"""Value of the program: a tensor or integer for each rank; for a tuple, the values of its elements."""


@dataclass
class Ranks:
    """``count`` ranks of ``mesh``. ``times``: the coordinate on each time axis of a running loop."""

    mesh: Mesh
    codec: ShardingCodec
    count: int
    times: dict[str, int] = field(default_factory=dict)

    def axes(self, op: ir.Operation) -> Axes:
        return self.codec.read_axes(op.attributes["axes"])

    def index(self, rank: int, axes: Axes) -> int:
        """Return a rank's index, in this iteration, in the product of ``axes``, the first most major."""
        place = 0
        for axis in axes:
            place = place * axis.size + self._coordinate(rank, axis)
        return place

    @contextmanager
    def at(self, axis: Axis, iteration: int) -> Iterator[None]:
        """Context of an ``iteration`` of a loop over ``axis``. Loops over parts of one axis may be nested."""
        before = dict(self.times)
        stride = self.mesh.size(axis.name) // (axis.pre * axis.size)
        self.times[axis.name] = before.get(axis.name, 0) + iteration * stride
        yield
        self.times = before

    def runs(self, axis: Axis, iteration: int) -> list[bool]:
        """Return, for each rank, True if it runs an iteration of the loop over ``axis``."""
        sharers = self.mesh.sharers(axis)
        if sharers is None:
            return [True] * self.count
        place = self.mesh.shares[axis.name].runner(iteration)
        return [self.mesh.coordinate(rank, sharers) == place for rank in range(self.count)]

    def as_run(self, values: Values) -> Values:
        """Return, for each rank, the value of the rank that runs this iteration of a shared loop."""
        for name, share in self.mesh.shares.items():
            if name in self.times:
                axes, place = (self.mesh.whole(shared_axis(name)),), share.runner(self.times[name])
                values = [values[self.mesh.group(rank, axes)[place]] for rank in range(self.count)]
        return values

    def _coordinate(self, rank: int, axis: Axis) -> int:
        if not self.mesh.is_time(axis):
            return self.mesh.coordinate(rank, axis)
        if axis.name not in self.times:
            raise ValueError(f"time axis {axis.name!r} is read outside a dist.loop over it")
        return self.times[axis.name] // (self.mesh.size(axis.name) // (axis.pre * axis.size)) % axis.size


def once_per(keys: Iterable[Hashable], make: Callable[[int], T]) -> list[T]:
    """Return ``make(rank)`` for every rank, run once for all ranks with the same key.

    Values never change, so ranks with the same operand objects can share one result.
    """
    made: dict[Hashable, T] = {}
    results: list[T] = []
    for rank, key in enumerate(keys):
        if key not in made:
            made[key] = make(rank)
        results.append(made[key])
    return results
