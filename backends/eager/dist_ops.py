"""Execution of ``dist`` ops without regions, on the values of all ranks at once."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor
from torch_mlir import ir

from shardc.backends.eager import collectives
from shardc.backends.eager.ranks import Ranks, Values, once_per
from shardc.dialects.dist.collectives.exchange import read_sources
from shardc.dialects.dist.sharding import Axes, Sharding

Handler = Callable[[Ranks, ir.Operation, list[Values]], Values]


def _identity(ranks: Ranks, op: ir.Operation, operands: list[Values]) -> Values:
    return operands[0]


def _collective(work: Callable[..., Values], *names: str) -> Handler:
    """Return the handler of an op that ``work`` computes from its operand, the mesh and these attributes."""

    def handle(ranks: Ranks, op: ir.Operation, operands: list[Values]) -> Values:
        return work(operands[0], ranks.mesh, *(_attribute(ranks, op, name) for name in names))

    return handle


def _attribute(ranks: Ranks, op: ir.Operation, name: str) -> int | str | Axes | Sharding | tuple[int, ...]:
    if name == "axes":
        return ranks.axes(op)
    if name in ("source", "target"):
        return ranks.codec.read(op.attributes[name])
    if name == "sources":
        return read_sources(op)
    return op.attributes[name].value


def _slice(ranks: Ranks, op: ir.Operation, operands: list[Values]) -> Values:
    """Return each rank's own block; over a time axis, the block of this iteration."""
    dim, axes, (values,) = op.attributes["dim"].value, ranks.axes(op), operands
    ways = prod(a.size for a in axes)

    def block(rank: int) -> Tensor:
        size, rest = divmod(values[rank].shape[dim], ways)
        if rest:
            size = values[rank].shape[dim]
            raise ValueError(f"dim {dim} of size {size} does not divide into {ways} blocks")
        return values[rank].narrow(dim, ranks.index(rank, axes) * size, size)

    return once_per(_places(ranks, axes, values), block)


def _partial(ranks: Ranks, op: ir.Operation, operands: list[Values]) -> Values:
    """Keep the value on the first rank (or iteration) over ``axes``, with zeros on the others."""
    axes, (values,) = ranks.axes(op), operands

    def term(rank: int) -> Tensor:
        return torch.zeros_like(values[rank]) if ranks.index(rank, axes) else values[rank]

    return once_per(_places(ranks, axes, values), term)


def _offset(ranks: Ranks, op: ir.Operation, operands: list[Values]) -> Values:
    extent, scale, base = (op.attributes[name].value for name in ("extent", "scale", "base"))
    axes = ranks.axes(op)
    starts = operands[0] if operands else [0] * ranks.count
    return [start + base + extent * scale * ranks.index(rank, axes) for rank, start in enumerate(starts)]


def _places(ranks: Ranks, axes: Axes, values: Values) -> list[tuple[int, int]]:
    return [(id(value), ranks.index(rank, axes)) for rank, value in enumerate(values)]


HANDLERS: dict[str, Handler] = {
    "dist.all_gather": _collective(collectives.all_gather, "dim", "axes"),
    "dist.all_reduce": _collective(collectives.all_reduce, "axes", "reduction"),
    "dist.all_to_all": _collective(collectives.all_to_all, "split_dim", "concat_dim", "axes"),
    "dist.broadcast": _collective(collectives.broadcast, "axes", "root"),
    "dist.constraint": _identity,
    "dist.exchange": _collective(collectives.exchange, "axes", "sources"),
    "dist.offset": _offset,
    "dist.partial": _partial,
    "dist.permute": _collective(collectives.permute, "source", "target"),
    "dist.reduce_scatter": _collective(collectives.reduce_scatter, "dim", "axes", "reduction"),
    "dist.reshard": _identity,
    "dist.slice": _slice,
}
