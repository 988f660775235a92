"""Conversion between global tensors and ranks' blocks, to compare programs."""

from __future__ import annotations

import torch
from torch import Tensor

from shardc.backends.eager import collectives
from shardc.backends.eager.proof.tolerance import difference
from shardc.dialects.dist.interleaving import Interleaving
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding
from shardc.runtime.comm.layout import with_padding


def without_time(sharding: Sharding, mesh: Mesh) -> Sharding:
    """Return a sharding without time axes: a rank holds a block whole, even if a loop divides it further."""
    return collectives.restricted(sharding, lambda axis: not mesh.is_time(axis))


def adds_over_time(sharding: Sharding, mesh: Mesh) -> bool:
    """Return True if a value of a loop's body is a term of a sum over the iterations."""
    return any(mesh.is_time(axis) for _, axis in sharding.partial)


def cut(
    tensor: Tensor, sharding: Sharding, mesh: Mesh, padded: tuple[int, ...], parts: Interleaving | None = None
) -> list[Tensor]:
    """Return each rank's block of ``tensor``, zero-padded at the end of dims to the shape ``padded``."""
    whole = with_padding(as_stored(tensor, parts), padded)
    return collectives.scatter(whole, without_time(sharding, mesh), mesh)


def as_stored(tensor: Tensor, interleaving: Interleaving | None) -> Tensor:
    """Return ``tensor`` with the parts of a dim interleaved."""
    if interleaving is None:
        return tensor
    return tensor.index_select(interleaving.dim, _order(interleaving))


def restored(tensor: Tensor, interleaving: Interleaving | None) -> Tensor:
    """Undo :func:`as_stored`."""
    if interleaving is None:
        return tensor
    return tensor.index_select(interleaving.dim, torch.argsort(_order(interleaving)))


def _order(interleaving: Interleaving) -> Tensor:
    return torch.tensor([n for run in interleaving.parts.runs() for n in run])


def join(
    blocks: list[Tensor],
    sharding: Sharding,
    mesh: Mesh,
    shape: tuple[int, ...],
    interleaving: Interleaving | None = None,
) -> tuple[Tensor, float]:
    """Return the whole tensor, and the largest difference between replicas of a block."""
    sharding = without_time(sharding, mesh)
    axes = sharding.used
    first: dict[int, Tensor] = {}
    chosen = [first.setdefault(mesh.index(rank, axes), block) for rank, block in enumerate(blocks)]
    spread = max(0.0 if a is b else difference(a, b) for a, b in zip(blocks, chosen, strict=True))
    return restored(collectives.gather(chosen, sharding, mesh, shape), interleaving), spread
