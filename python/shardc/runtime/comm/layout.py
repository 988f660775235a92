"""Blocks of a global tensor on each rank.

A layout lists, for each dim, the axes that shard it, major first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..check import Json
from .mesh import Axes, Mesh, ways


@dataclass(frozen=True)
class Interleaved:
    """Storage order of a dim that concatenates several parts, such as queries, keys and values.

    ``sizes``: sizes of the parts. Each part has ``ways`` equal blocks. The first blocks of all parts are
    stored first, then the second blocks, and so on, so that a device's block has some of each part.
    """

    dim: int
    ways: int
    sizes: tuple[int, ...]

    def runs(self) -> list[range]:
        """Return ranges of the dim's elements, in their storage order."""
        starts = [sum(self.sizes[:n]) for n in range(len(self.sizes))]
        blocks = [(start, size // self.ways) for start, size in zip(starts, self.sizes, strict=True)]
        return [range(start + w * n, start + (w + 1) * n) for w in range(self.ways) for start, n in blocks]

    def elements(self, stored: slice) -> list[slice]:
        """Return the slices of the dim that are stored at ``stored``: at least one slice."""
        found, at = [], 0
        for run in self.runs():
            low, high = max(stored.start - at, 0), min(stored.stop - at, len(run))
            if low < high:
                found.append(slice(run.start + low, run.start + high))
            at += len(run)
        return found or [slice(0, 0)]

    def restored(self, whole: Tensor) -> Tensor:
        """Return a whole tensor in its logical order, from one in storage order."""
        order = torch.tensor([n for run in self.runs() for n in run], device=whole.device)
        return whole.index_select(self.dim, torch.argsort(order))


@dataclass(frozen=True)
class Leaf:
    """Argument or result of the program, as its manifest describes it. ``shape``: its global shape.

    ``padded``: the shape with padding at the end of dims, which makes them divisible; empty if they divide.
    Ranks hold blocks of the padded tensor. ``interleaved``: storage order of a dim, if not the logical one.
    ``share``: for an input, the time axis whose iterations are shared among ranks, each with a block of dim
    0. A rank then holds the whole input, and reads only the rows of its own iterations.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    dims: tuple[Axes, ...]
    fill: float | None = None
    padded: tuple[int, ...] = ()
    interleaved: Interleaved | None = None
    share: str = ""

    @staticmethod
    def read(entry: Json) -> Leaf:
        dims = tuple(tuple((str(n), int(p), int(s)) for n, p, s in dim) for dim in entry["sharding"]["dims"])
        dtype = getattr(torch, entry["dtype"])
        shape, padded, parts = tuple(entry["shape"]), tuple(entry.get("padded", ())), entry.get("interleaved")
        stored = None if parts is None else Interleaved(parts["dim"], parts["ways"], tuple(parts["sizes"]))
        how = entry.get("fill"), padded, stored, entry.get("share", "")
        return Leaf(entry["name"], entry["role"], shape, dtype, dims, *how)

    def describe(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)}"

    def space_dims(self, mesh: Mesh) -> tuple[Axes, ...]:
        """Return each dim's space axes. Time axes do not divide the stored block."""
        return tuple(tuple(a for a in dim if not mesh.is_time(a)) for dim in self.dims)

    def local_shape(self, mesh: Mesh) -> tuple[int, ...]:
        """Return the shape of every rank's block, padding included."""
        sizes = zip(self.padded or self.shape, self.space_dims(mesh), strict=True)
        return tuple(n // ways(dim) for n, dim in sizes)

    def held_shape(self, mesh: Mesh, rank: int) -> tuple[int, ...]:
        """Return the shape of a rank's block without its padding."""
        return tuple(s.stop - s.start for s in self.slices(mesh, rank))

    def read_by(self, mesh: Mesh, rank: int) -> tuple[slice, ...]:
        """Return the slices of its block that a rank reads: with ``share``, only its own iterations' rows."""
        held = self.slices(mesh, rank)
        if not self.share:
            return tuple(slice(0, s.stop - s.start) for s in held)
        first, end, count = mesh.share(rank, self.share)
        rows, size = (self.padded or self.shape)[0] // count, self.shape[0]
        own = slice(min(first * rows, size), min(end * rows, size))
        return (own, *(slice(0, s.stop - s.start) for s in held[1:]))

    def slices(self, mesh: Mesh, rank: int) -> tuple[slice, ...]:
        """Return the slices of the stored tensor in a rank's block. Time axes are minor to space axes."""
        blocks = zip(self.local_shape(mesh), self.space_dims(mesh), self.shape, strict=True)
        found = ((n, mesh.index(rank, dim), size) for n, dim, size in blocks)
        return tuple(slice(min(n * i, size), min(n * i + n, size)) for n, i, size in found)

    def blocks(self, mesh: Mesh, rank: int) -> list[tuple[slice, ...]]:
        """Return the slices of the logical tensor, mostly one, whose concatenation is a rank's block."""
        stored = self.slices(mesh, rank)
        if self.interleaved is None:
            return [stored]
        d = self.interleaved.dim
        return [(*stored[:d], part, *stored[d + 1 :]) for part in self.interleaved.elements(stored[d])]

    def lies_like(self, mesh: Mesh, other: Leaf, its_mesh: Mesh) -> bool:
        """Return True if every rank holds the same block of both tensors, in the same storage order."""
        mine, its = (
            (self.padded or self.shape, self.interleaved),
            (other.padded or other.shape, other.interleaved),
        )
        if mine != its or self.dtype != other.dtype or mesh.world_size != its_mesh.world_size:
            return False
        if mesh.space == its_mesh.space and self.space_dims(mesh) == other.space_dims(its_mesh):
            return True
        return all(self.slices(mesh, r) == other.slices(its_mesh, r) for r in range(mesh.world_size))

    def placed(self, mesh: Mesh) -> str:
        """Describe the sharding, as ``sharded on dim 0 over data``."""
        dims = [(d, axes) for d, axes in enumerate(self.space_dims(mesh)) if ways(axes) > 1]
        said = [f"dim {d} over {' and '.join(f'{n} {size}' for n, _, size in axes)}" for d, axes in dims]
        return f"sharded on {', '.join(said)}" if said else "replicated"

    def is_chunked(self, mesh: Mesh) -> bool:
        """Return True if ranks hold the blocks of ``torch.chunk``, as in a DTensor."""
        if self.interleaved is not None:
            return False
        blocks = zip(self.padded or self.shape, chunked_shape(self, mesh), self.space_dims(mesh), strict=True)
        return all(ways(dim) == 1 or n == chunked for n, chunked, dim in blocks)


def chunked_shape(leaf: Leaf, mesh: Mesh) -> tuple[int, ...]:
    """Return the padded shape with which ranks would hold the blocks of ``torch.chunk``."""
    sizes = zip(leaf.shape, leaf.space_dims(mesh), strict=True)
    return tuple(-(-n // ways(dim)) * ways(dim) for n, dim in sizes)


def placed(value: Tensor, place: tuple[slice, ...], shape: tuple[int, ...]) -> Tensor:
    """Return zeros of ``shape`` with ``value`` at ``place``; ``value`` itself if it has that shape."""
    if tuple(value.shape) == shape:
        return value
    whole = value.new_zeros(shape)
    whole[place] = value
    return whole


def with_padding(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Pad ``value`` with zeros at the end of its dims to ``shape``. An empty ``shape`` means no padding."""
    if not shape or tuple(value.shape) == shape:
        return value
    whole = value.new_zeros(shape)
    whole[tuple(map(slice, value.shape))] = value
    return whole


def cut(value: Tensor, dims: Sequence[Axes], mesh: Mesh, rank: int) -> Tensor:
    """Return this rank's block of a global tensor, as a view if possible.

    Time axes are not divided, wherever they are among the space axes. If (micro, data) shard a dim, a rank
    holds its rows of every micro-batch, in order.
    """
    for d, axes in enumerate(dims):
        if not axes:
            continue
        value = value.unflatten(d, [*[size for _, _, size in axes], -1])
        kept = 0
        for axis in axes:
            if mesh.is_time(axis):
                kept += 1
            else:
                value = value.select(d + kept, mesh.coordinate(rank, axis))
        value = value.flatten(d, d + kept)
    return value
