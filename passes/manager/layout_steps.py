"""Ops of level 3 that change a layout, as steps of a reshard."""

from __future__ import annotations

from collections.abc import Callable

from torch_mlir import ir

from shardc.dialects.dist.reshard_steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    ToPartial,
)
from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec


def _read(op: ir.Operation, name: str, codec: ShardingCodec) -> int | str | Axes | Sharding:
    if name == "axes":
        return codec.read_axes(op.attributes[name])
    if name in ("source", "target"):
        return codec.read(op.attributes[name])
    return op.attributes[name].value


def axes_of(op: ir.Operation, codec: ShardingCodec) -> Axes:
    """Return the axes of an op; none for a permute, which has two layouts instead."""
    return codec.read_axes(op.attributes["axes"]) if "axes" in op.attributes else ()


def _step(kind: Callable[..., Step], *names: str) -> Callable[[ir.Operation, ShardingCodec], Step]:
    """Return a function that builds a step of ``kind`` from an op's attributes ``names``."""
    return lambda op, codec: kind(*(_read(op, name, codec) for name in names))


STEPS = {
    "dist.all_gather": _step(AllGather, "dim", "axes"),
    "dist.all_reduce": _step(AllReduce, "axes", "reduction"),
    "dist.all_to_all": _step(AllToAll, "split_dim", "concat_dim", "axes"),
    "dist.partial": _step(ToPartial, "axes"),
    "dist.permute": _step(Permute, "source", "target"),
    "dist.reduce_scatter": _step(ReduceScatter, "dim", "axes", "reduction"),
    "dist.slice": _step(Slice, "dim", "axes"),
}
"""Op -> the step that it applies to the layout of its operand."""
