"""Where a rank's block of a global tensor lies. A layout lists each dim's axes that cut it, major first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..check import Json
from .mesh import Axes, Mesh, ways


@dataclass(frozen=True)
class Interleaved:
    """A dim that holds parts of ``sizes`` beside one another (queries, keys and values), each in ``ways``
    equal blocks: stored are the first blocks of all parts, then the second ones, and so on. A device's block
    then has some of each part.
    """

    dim: int
    ways: int
    sizes: tuple[int, ...]

    def runs(self) -> list[range]:
        """The elements of the dim in the order in which they are stored."""
        starts = [sum(self.sizes[:n]) for n in range(len(self.sizes))]
        blocks = [(start, size // self.ways) for start, size in zip(starts, self.sizes, strict=True)]
        return [range(start + w * n, start + (w + 1) * n) for w in range(self.ways) for start, n in blocks]

    def elements(self, stored: slice) -> list[slice]:
        """Which elements of the dim are stored there, at least one slice."""
        found, at = [], 0
        for run in self.runs():
            low, high = max(stored.start - at, 0), min(stored.stop - at, len(run))
            if low < high:
                found.append(slice(run.start + low, run.start + high))
            at += len(run)
        return found or [slice(0, 0)]

    def restored(self, whole: Tensor) -> Tensor:
        """A whole tensor as it is, of one as it is stored."""
        order = torch.tensor([n for run in self.runs() for n in run], device=whole.device)
        return whole.index_select(self.dim, torch.argsort(order))


@dataclass(frozen=True)
class Leaf:
    """One argument or result of the program, as its manifest describes it: ``shape`` is global.

    ``padded`` is its shape with the padding that makes its dims divide, at their end; empty where they
    divide. A rank's block is one of a tensor of that shape, and holds padding where the tensor ends inside of
    it. Where it is ``interleaved``, that tensor is the one that is stored. ``share``: of an input, the time
    axis whose iterations ranks share out, a block of dim 0 each. A rank's block is then whole, and of its own
    iterations alone is what it reads.
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
        """The axes of each dim without those of time, which leave the stored block whole."""
        return tuple(tuple(a for a in dim if not mesh.is_time(a)) for dim in self.dims)

    def local_shape(self, mesh: Mesh) -> tuple[int, ...]:
        """The shape of every rank's block, padding included."""
        sizes = zip(self.padded or self.shape, self.space_dims(mesh), strict=True)
        return tuple(n // ways(dim) for n, dim in sizes)

    def held_shape(self, mesh: Mesh, rank: int) -> tuple[int, ...]:
        """The shape of what the rank's block holds of the tensor: all of it but for padding."""
        return tuple(s.stop - s.start for s in self.slices(mesh, rank))

    def read_by(self, mesh: Mesh, rank: int) -> tuple[slice, ...]:
        """The slice of each dim that a rank reads of what its block holds: of shares, its own iterations'."""
        held = self.slices(mesh, rank)
        if not self.share:
            return tuple(slice(0, s.stop - s.start) for s in held)
        first, end, count = mesh.share(rank, self.share)
        rows, size = (self.padded or self.shape)[0] // count, self.shape[0]
        own = slice(min(first * rows, size), min(end * rows, size))
        return (own, *(slice(0, s.stop - s.start) for s in held[1:]))

    def slices(self, mesh: Mesh, rank: int) -> tuple[slice, ...]:
        """The stored slice of each dim that the block holds; axes of time come after those of space."""
        blocks = zip(self.local_shape(mesh), self.space_dims(mesh), self.shape, strict=True)
        found = ((n, mesh.index(rank, dim), size) for n, dim, size in blocks)
        return tuple(slice(min(n * i, size), min(n * i + n, size)) for n, i, size in found)

    def blocks(self, mesh: Mesh, rank: int) -> list[tuple[slice, ...]]:
        """The blocks (mostly one) that, joined along the interleaved dim, are what the rank's block holds."""
        stored = self.slices(mesh, rank)
        if self.interleaved is None:
            return [stored]
        d = self.interleaved.dim
        return [(*stored[:d], part, *stored[d + 1 :]) for part in self.interleaved.elements(stored[d])]

    def lies_like(self, mesh: Mesh, other: Leaf, its_mesh: Mesh) -> bool:
        """Whether every rank holds the same block of this tensor as of ``other``, stored alike."""
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
        """Its sharding in words: ``sharded on dim 0 over data``."""
        dims = [(d, axes) for d, axes in enumerate(self.space_dims(mesh)) if ways(axes) > 1]
        said = [f"dim {d} over {' and '.join(f'{n} {size}' for n, _, size in axes)}" for d, axes in dims]
        return f"sharded on {', '.join(said)}" if said else "replicated"

    def is_chunked(self, mesh: Mesh) -> bool:
        """Whether ranks hold what ``torch.chunk`` gives them, as DTensor has it."""
        if self.interleaved is not None:
            return False
        blocks = zip(self.padded or self.shape, chunked_shape(self, mesh), self.space_dims(mesh), strict=True)
        return all(ways(dim) == 1 or n == chunked for n, chunked, dim in blocks)


def chunked_shape(leaf: Leaf, mesh: Mesh) -> tuple[int, ...]:
    """The padded shape with which ranks would hold what ``torch.chunk`` gives them."""
    sizes = zip(leaf.shape, leaf.space_dims(mesh), strict=True)
    return tuple(-(-n // ways(dim)) * ways(dim) for n, dim in sizes)


def placed(value: Tensor, place: tuple[slice, ...], shape: tuple[int, ...]) -> Tensor:
    """``value`` at its place in zeros of ``shape``; itself if that is all of it."""
    if tuple(value.shape) == shape:
        return value
    whole = value.new_zeros(shape)
    whole[place] = value
    return whole


def with_padding(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """``value`` with zeros at the end of its dims, up to ``shape``; itself if it has it, or that is empty."""
    if not shape or tuple(value.shape) == shape:
        return value
    whole = value.new_zeros(shape)
    whole[tuple(map(slice, value.shape))] = value
    return whole


def cut(value: Tensor, dims: Sequence[Axes], mesh: Mesh, rank: int) -> Tensor:
    """This rank's block of a global tensor, a view where it can be one.

    Axes of time are kept whole, wherever they stand among those of space: with a dim cut by (micro, data), a
    rank holds its rows of every micro-batch, in order.
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
