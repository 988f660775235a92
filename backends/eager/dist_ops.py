"""The ``dist`` ops that have no region, on the values of all ranks at once."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch_mlir import ir

from shardc.backends.eager import collectives
from shardc.backends.eager.ranks import Ranks, once_per
from shardc.dialects.dist.sharding import Axes

Values = list[Any]
"""One value of the program: a tensor (or an integer) for each rank; for a tuple, the values in it."""

Handler = Callable[[Ranks, ir.Operation, list[Values]], Values]


def _identity(ranks: Ranks, op: ir.Operation, operands: list[Values]) -> Values:
    return operands[0]


def _all_reduce(ranks: Ranks, op: ir.Operation, operands: list[Values]) -> Values:
    return collectives.all_reduce(operands[0], ranks.mesh, ranks.axes(op), _text(op, "reduction"))


def _all_gather(ranks: Ranks, op: ir.Operation, operands: list[Values]) -> Values:
    return collectives.all_gather(operands[0], ranks.mesh, _int(op, "dim"), ranks.axes(op))


def _reduce_scatter(ranks: Ranks, op: ir.Operation, operands: list[Values]) -> Values:
    dim, reduction = _int(op, "dim"), _text(op, "reduction")
    return collectives.reduce_scatter(operands[0], ranks.mesh, dim, ranks.axes(op), reduction)


def _all_to_all(ranks: Ranks, op: ir.Operation, operands: list[Values]) -> Values:
    split, concat = _int(op, "split_dim"), _int(op, "concat_dim")
    return collectives.all_to_all(operands[0], ranks.mesh, split, concat, ranks.axes(op))


def _permute(ranks: Ranks, op: ir.Operation, operands: list[Values]) -> Values:
    source, target = (ranks.codec.read(op.attributes[name]) for name in ("source", "target"))
    return collectives.permute(operands[0], ranks.mesh, source, target)


def _broadcast(ranks: Ranks, op: ir.Operation, operands: list[Values]) -> Values:
    return collectives.broadcast(operands[0], ranks.mesh, ranks.axes(op), _int(op, "root"))


def _slice(ranks: Ranks, op: ir.Operation, operands: list[Values]) -> Values:
    """Each rank's own block; over a time axis the block of this iteration."""
    dim, axes, (values,) = _int(op, "dim"), ranks.axes(op), operands
    ways = prod(a.size for a in axes)

    def block(rank: int) -> torch.Tensor:
        size, rest = divmod(values[rank].shape[dim], ways)
        if rest:
            raise ValueError(
                f"dim {dim} of size {values[rank].shape[dim]} does not divide into {ways} blocks"
            )
        return values[rank].narrow(dim, ranks.index(rank, axes) * size, size)

    return once_per(_places(ranks, axes, values), block)


def _partial(ranks: Ranks, op: ir.Operation, operands: list[Values]) -> Values:
    """The value on the first of the ranks (or iterations) over ``axes``, zeros on the others."""
    axes, (values,) = ranks.axes(op), operands

    def term(rank: int) -> torch.Tensor:
        return torch.zeros_like(values[rank]) if ranks.index(rank, axes) else values[rank]

    return once_per(_places(ranks, axes, values), term)


def _offset(ranks: Ranks, op: ir.Operation, operands: list[Values]) -> Values:
    axes, step, base = ranks.axes(op), _int(op, "scale") * _int(op, "extent"), _int(op, "base")
    starts = operands[0] if operands else [0] * ranks.count
    return [start + base + step * ranks.index(rank, axes) for rank, start in enumerate(starts)]


def _places(ranks: Ranks, axes: Axes, values: Values) -> list[tuple[int, int]]:
    return [(id(value), ranks.index(rank, axes)) for rank, value in enumerate(values)]


def _int(op: ir.Operation, name: str) -> int:
    return ir.IntegerAttr(op.attributes[name]).value


def _text(op: ir.Operation, name: str) -> str:
    return ir.StringAttr(op.attributes[name]).value


HANDLERS: dict[str, Handler] = {
    "dist.all_gather": _all_gather,
    "dist.all_reduce": _all_reduce,
    "dist.all_to_all": _all_to_all,
    "dist.broadcast": _broadcast,
    "dist.constraint": _identity,
    "dist.offset": _offset,
    "dist.partial": _partial,
    "dist.permute": _permute,
    "dist.reduce_scatter": _reduce_scatter,
    "dist.reshard": _identity,
    "dist.slice": _slice,
}
