"""Collectives on the blocks of all ranks at once, for the oracle and for proofs of reshards.

``values`` has one tensor for each rank of the space axes, in the order of ranks. Ranks with equal results
share one tensor object, because nothing here changes a tensor in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce

import torch
from torch import Tensor

from shardc.diagnostics.dialects.sharding import ReplicasDiffer
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.collectives.exchange import ZEROS
from shardc.dialects.dist.collectives.permute import senders
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Axes, Sharding
from shardc.runtime.comm.layout import with_padding

Values = Sequence[Tensor]

_COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
}


def all_reduce(values: Values, mesh: Mesh, axes: Axes, reduction: str) -> list[Tensor]:
    """Reduce over the ranks that differ only on ``axes``, in the order of their index."""
    return _by_group(values, mesh, axes, lambda terms: [combine(terms, reduction)] * len(terms))


def all_gather(values: Values, mesh: Mesh, dim: int, axes: Axes) -> list[Tensor]:
    """Concatenate the blocks of each group along ``dim``."""
    return _by_group(values, mesh, axes, lambda blocks: [torch.cat(blocks, dim)] * len(blocks))


def reduce_scatter(values: Values, mesh: Mesh, dim: int, axes: Axes, reduction: str) -> list[Tensor]:
    """Give each rank its block, along ``dim``, of the reduction over its group."""
    return _by_group(values, mesh, axes, lambda terms: _cut(combine(terms, reduction), dim, len(terms)))


def all_to_all(values: Values, mesh: Mesh, split_dim: int, concat_dim: int, axes: Axes) -> list[Tensor]:
    """Split each rank's tensor along ``split_dim``, and join the received blocks along ``concat_dim``."""

    def exchange(tensors: list[Tensor]) -> list[Tensor]:
        pieces = [_cut(tensor, split_dim, len(tensors)) for tensor in tensors]
        return [torch.cat(row, concat_dim) for row in zip(*pieces, strict=True)]

    return _by_group(values, mesh, axes, exchange)


def permute(values: Values, mesh: Mesh, source: Sharding, target: Sharding) -> list[Tensor]:
    """Give each rank its block under ``target``, from a rank that has it under ``source``."""
    return [values[sender] for sender in _senders(source, target, mesh)]


def exchange(values: Values, mesh: Mesh, axes: Axes, sources: Sequence[int]) -> list[Tensor]:
    """Give index ``i`` of each group the tensor of index ``sources[i]``; zeros for -1."""

    def trade(tensors: list[Tensor]) -> list[Tensor]:
        return [torch.zeros_like(tensors[0]) if s == ZEROS else tensors[s] for s in sources]

    return _by_group(values, mesh, axes, trade)


def broadcast(values: Values, mesh: Mesh, axes: Axes, root: int) -> list[Tensor]:
    """Give each rank the tensor of the rank with index ``root`` in its group."""
    return _by_group(values, mesh, axes, lambda tensors: [tensors[root]] * len(tensors))


def to_partial(values: Values, mesh: Mesh, axes: Axes) -> list[Tensor]:
    """Return terms that add up to ``values``: zeros on all ranks except the first over ``axes``."""
    return [torch.zeros_like(value) if mesh.index(rank, axes) else value for rank, value in enumerate(values)]


def combine(terms: Iterable[Tensor], reduction: str) -> Tensor:
    """Reduce ``terms`` in order, in their own dtype."""
    return reduce(_COMBINE[reduction], terms)


def scatter(tensor: Tensor, sharding: Sharding, mesh: Mesh) -> list[Tensor]:
    """Return each rank's block of a global tensor. Dims that do not divide are padded with zeros at their
    end.

    For a partial sum, the first term has the values and the others are zeros. For partial "max" and "min",
    all terms have the values.
    """
    ways = map(sharding.ways, range(tensor.ndim))
    tensor = with_padding(tensor, tuple(-(-n // w) * w for n, w in zip(tensor.shape, ways, strict=True)))
    blocks: dict[tuple[int, ...], Tensor] = {}
    made = [blocks.setdefault(place, _block(tensor, sharding, place)) for place in _places(sharding, mesh)]
    summed = tuple(axis for reduction, axis in sharding.partial if reduction == "sum")
    return to_partial(made, mesh, summed) if summed else made


def gather(blocks: Values, sharding: Sharding, mesh: Mesh, shape: tuple[int, ...]) -> Tensor:
    """Return the global tensor of ``shape`` from its blocks. Terms are combined, and padding is removed.

    Raises ReplicasDiffer if replicas differ in any bit.
    """
    distinct = _distinct(blocks, sharding, mesh)
    reduction = sharding.partial[0][0] if sharding.partial else "sum"
    terms: dict[tuple[int, ...], list[Tensor]] = {}
    for (*place, _), block in sorted(distinct.items(), key=lambda item: item[0]):
        terms.setdefault(tuple(place), []).append(block)
    combined = {place: combine(of_place, reduction) for place, of_place in terms.items()}
    return without_padding(_join(combined, len(shape)), shape)


def without_padding(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a view of ``tensor`` with ``shape``, from the start of each dim."""
    for dim, size in enumerate(shape):
        tensor = tensor.narrow(dim, 0, size)
    return tensor


def restricted(sharding: Sharding, keep: Callable[[Axis], bool]) -> Sharding:
    """Return the part of a sharding over the axes for which ``keep`` is true."""
    dims = tuple(tuple(filter(keep, dim)) for dim in sharding.dims)
    return Sharding(dims, tuple((reduction, axis) for reduction, axis in sharding.partial if keep(axis)))


def _join(blocks: dict[tuple[int, ...], Tensor], rank: int) -> Tensor:
    """Join blocks, given by position in the order of positions, to a tensor."""
    for dim in reversed(range(rank)):
        rows: dict[tuple[int, ...], list[Tensor]] = {}
        for place, block in blocks.items():
            rows.setdefault(place[:dim], []).append(block)
        blocks = {place: row[0] if len(row) == 1 else torch.cat(row, dim) for place, row in rows.items()}
    return blocks[()]


def _distinct(blocks: Values, sharding: Sharding, mesh: Mesh) -> dict[tuple[int, ...], Tensor]:
    """Return one block for each position and term. The term's index is last in the key."""
    terms = tuple(axis for _, axis in sharding.partial)
    holder: dict[tuple[int, ...], int] = {}
    for rank, place in enumerate(_places(sharding, mesh)):
        first = holder.setdefault((*place, mesh.index(rank, terms)), rank)
        _check_replica(blocks, first, rank, sharding)
    return {key: blocks[rank] for key, rank in holder.items()}


def _check_replica(blocks: Values, first: int, second: int, sharding: Sharding) -> None:
    one, other = blocks[first], blocks[second]
    if one is other:
        return
    differ = (one != other) & ~((one != one) & (other != other))
    if differ.any():
        wide = torch.complex128 if one.is_complex() else torch.float64
        gap = (one.to(wide) - other.to(wide)).abs()[differ].max().item()
        found = {"count": int(differ.sum()), "size": one.numel(), "difference": f"{gap:.3g}"}
        raise ReplicasDiffer(first=first, second=second, sharding=sharding, **found)


@lru_cache(maxsize=4096)
def _places(sharding: Sharding, mesh: Mesh) -> tuple[tuple[int, ...], ...]:
    """Return, for each rank, the index of its block in every dim."""
    return tuple(tuple(mesh.index(r, axes) for axes in sharding.dims) for r in range(mesh.world_size))


def _block(tensor: Tensor, sharding: Sharding, place: tuple[int, ...]) -> Tensor:
    for dim, index in enumerate(place):
        size = tensor.shape[dim] // sharding.ways(dim)
        tensor = tensor.narrow(dim, index * size, size)
    return tensor


def _cut(tensor: Tensor, dim: int, ways: int) -> list[Tensor]:
    """Split a dim into ``ways`` equal blocks. Raises ValueError if it does not divide."""
    if tensor.shape[dim] % ways:
        raise ValueError(f"dim {dim} of shape {list(tensor.shape)} does not divide into {ways} equal blocks")
    size = tensor.shape[dim] // ways
    return [tensor.narrow(dim, i * size, size) for i in range(ways)]


def _by_group(
    values: Values, mesh: Mesh, axes: Axes, work: Callable[[list[Tensor]], list[Tensor]]
) -> list[Tensor]:
    results = list(values)
    for group in _groups(mesh, axes):
        for rank, result in zip(group, work([values[r] for r in group]), strict=True):
            results[rank] = result
    return results


@lru_cache(maxsize=4096)
def _groups(mesh: Mesh, axes: Axes) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each group over ``axes``, in the order of their index."""
    groups: list[tuple[int, ...]] = []
    seen: set[int] = set()
    for rank in range(mesh.world_size):
        if rank not in seen:
            groups.append(mesh.group(rank, axes))
            seen.update(groups[-1])
    return tuple(groups)


_senders = lru_cache(maxsize=4096)(senders)
