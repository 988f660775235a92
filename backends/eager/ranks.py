"""The simulated ranks of one run: where each stands on the mesh, and on the time axes looped over."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from torch_mlir import ir

from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Axes, ShardingCodec

T = TypeVar("T")


@dataclass
class Ranks:
    """``count`` ranks of ``mesh``; ``times`` is the coordinate on each time axis looped over."""

    mesh: Mesh
    codec: ShardingCodec
    count: int
    times: dict[str, int] = field(default_factory=dict)

    def axes(self, op: ir.Operation) -> Axes:
        return self.codec.read_axes(op.attributes["axes"])

    def index(self, rank: int, axes: Axes) -> int:
        """The place of a rank, in this iteration, in the product of ``axes``, the first the most major."""
        place = 0
        for axis in axes:
            place = place * axis.size + self._coordinate(rank, axis)
        return place

    @contextmanager
    def at(self, axis: Axis, iteration: int) -> Iterator[None]:
        """While a loop over ``axis`` is in ``iteration``. Loops over parts of one time axis may be nested."""
        before = dict(self.times)
        stride = self.mesh.size(axis.name) // (axis.pre * axis.size)
        self.times[axis.name] = before.get(axis.name, 0) + iteration * stride
        yield
        self.times = before

    def runs(self, axis: Axis, iteration: int) -> list[bool]:
        """Whether each rank runs an iteration of the loop over ``axis``; of shares, those that are its own."""
        sharers = self.mesh.sharers(axis)
        if sharers is None:
            return [True] * self.count
        owners = [place for place, n in enumerate(self.mesh.shares[axis.name].trips) for _ in range(n)]
        return [self.mesh.coordinate(rank, sharers) == owners[iteration] for rank in range(self.count)]

    def _coordinate(self, rank: int, axis: Axis) -> int:
        if not self.mesh.is_time(axis):
            return self.mesh.coordinate(rank, axis)
        if axis.name not in self.times:
            raise ValueError(f"time axis {axis.name!r} is read outside a dist.loop over it")
        return self.times[axis.name] // (self.mesh.size(axis.name) // (axis.pre * axis.size)) % axis.size


def once_per(keys: Iterable[Hashable], make: Callable[[int], T]) -> list[T]:
    """``make(rank)`` for every rank, run once for the ranks that share a key.

    Values never change, so ranks whose operands are the same objects share one result, held once.
    """
    made: dict[Hashable, T] = {}
    results: list[T] = []
    for rank, key in enumerate(keys):
        if key not in made:
            made[key] = make(rank)
        results.append(made[key])
    return results
