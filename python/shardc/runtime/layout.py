"""Where one rank's block of a global tensor lies. A layout is, for each dim, the axes that cut it, major first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .mesh import Axes, Mesh, ways


@dataclass(frozen=True)
class Leaf:
    """One argument or result of the program, as its manifest describes it: ``shape`` is global."""

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    dims: tuple[Axes, ...]
    fill: float | None = None

    @staticmethod
    def read(entry: dict[str, Any]) -> Leaf:
        dims = tuple(tuple((str(n), int(p), int(s)) for n, p, s in dim) for dim in entry["sharding"]["dims"])
        dtype = getattr(torch, entry["dtype"])
        return Leaf(entry["name"], entry["role"], tuple(entry["shape"]), dtype, dims, entry.get("fill"))

    def describe(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)}"

    def space_dims(self, mesh: Mesh) -> tuple[Axes, ...]:
        """The axes of each dim without those of time, which leave the stored block whole."""
        return tuple(tuple(a for a in dim if not mesh.is_time(a)) for dim in self.dims)

    def local_shape(self, mesh: Mesh) -> tuple[int, ...]:
        return tuple(n // ways(dim) for n, dim in zip(self.shape, self.space_dims(mesh), strict=True))

    def slices(self, mesh: Mesh, rank: int) -> tuple[slice, ...]:
        """The rank's block as a slice of each dim; no axis of time may come before one of space in a dim."""
        blocks = zip(self.local_shape(mesh), self.space_dims(mesh), strict=True)
        return tuple(slice(n * i, n * i + n) for n, i in ((n, mesh.index(rank, dim)) for n, dim in blocks))


def cut(value: Tensor, dims: Sequence[Axes], mesh: Mesh, rank: int) -> Tensor:
    """This rank's block of a global tensor, a view where it can be one.

    Axes of time are kept whole, wherever they stand among those of space: with a dim cut by (micro, data), a rank
    holds its rows of every micro-batch, in order.
    """
    for d, axes in enumerate(dims):
        if not axes:
            continue
        sizes = [size for _, _, size in axes]
        value = value.unflatten(d, [*sizes, -1])
        kept = 0
        for axis in axes:
            if mesh.is_time(axis):
                kept += 1
            else:
                value = value.select(d + kept, mesh.coordinate(rank, axis))
        value = value.flatten(d, d + kept)
    return value
