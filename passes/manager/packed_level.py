"""Checks of collectives on several tensors packed into one, which ``dist-combine`` builds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

from torch_mlir import ir

from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.reshard_steps import AllGather, AllReduce, ReduceScatter, Step
from shardc.dialects.dist.sharding import Sharding, ShardingCodec

PACKED = ("dist.all_reduce", "dist.all_gather", "dist.reduce_scatter")
_SHAPED = ("torch.aten.reshape",)


def packed_problem(
    op: ir.Operation, codec: ShardingCodec, layouts: Mapping[ir.Value, Sharding]
) -> str | None:
    """Return the problem of a collective on a ``cat`` of tensors with known layouts; None for other operands.

    Each part of the result must have the layout that the collective gives to the corresponding tensor.
    """
    members = _members(op)
    parts = _parts(op.results[0])
    if not members or not parts:
        return None
    sizes = [(t.numel if (t := read_type(m.type)) else 0) for m in members]
    total = sum(sizes)
    starts = [start / total for start in accumulate(sizes[:-1], initial=0)]
    if len(parts) != len(members) or [start for start, _ in parts] != starts:
        return f"{op.name} is on {len(members)} tensors, but its result is taken apart otherwise"
    for member, (_, part) in zip(members, parts, strict=True):
        said = part.owner.operation.attributes.get("dist.shardings")
        if member not in layouts or said is None:
            continue
        source, target = layouts[member], codec.read(said[0]).normal()
        if not any(_leads(step, source, target) for step in _steps(op, codec, len(source.dims))):
            return f"{op.name} does not lead from {source} to {target}"
    return None


def _members(op: ir.Operation) -> list[ir.Value]:
    """Return the tensors that were packed for a collective, before they were reshaped for it."""
    made = None if isinstance(op.operands[0].owner, ir.Block) else op.operands[0].owner.operation
    if made is None or made.name != "torch.aten.cat":
        return []
    return [_unshaped(value) for value in made.operands[0].owner.operation.operands]


def _unshaped(value: ir.Value) -> ir.Value:
    made = None if isinstance(value.owner, ir.Block) else value.owner.operation
    is_shaped = made is not None and made.name in _SHAPED and "dist.shardings" not in made.attributes
    return made.operands[0] if made is not None and is_shaped else value


def _parts(value: ir.Value) -> list[tuple[float, ir.Value]]:
    """Return (start as a fraction of the whole, part) for each part into which a packed result is split."""
    found: list[tuple[float, ir.Value]] = []
    for user in (use.owner.operation for use in value.uses):
        if user.name in _SHAPED:
            found += _parts(user.results[0])
        elif user.name == "torch.aten.slice.Tensor":
            dim, start = (user.operands[i].owner.attributes["value"].value for i in (1, 2))
            type_ = read_type(value.type)
            assert type_ is not None
            found.append((start / type_.shape[dim], _shaped(user.results[0])))
    return sorted(found, key=lambda part: part[0])


def _shaped(part: ir.Value) -> ir.Value:
    """Return the part after the reshape to its own shape."""
    users = [use.owner.operation for use in part.uses]
    if (
        "dist.shardings" not in part.owner.operation.attributes
        and len(users) == 1
        and users[0].name in _SHAPED
    ):
        return users[0].results[0]
    return part


def _steps(op: ir.Operation, codec: ShardingCodec, rank: int) -> Iterator[Step]:
    """Yield the steps that the collective may be for one of its tensors; packing loses the dim."""
    axes = codec.read_axes(op.attributes["axes"])
    if op.name == "dist.all_reduce":
        yield AllReduce(axes, op.attributes["reduction"].value)
    for dim in range(rank):
        if op.name == "dist.all_gather":
            yield AllGather(dim, axes)
        elif op.name == "dist.reduce_scatter":
            yield ReduceScatter(dim, axes, op.attributes["reduction"].value)


def _leads(step: Step, source: Sharding, target: Sharding) -> bool:
    try:
        return step.apply(source).normal() == target
    except ValueError:
        return False
