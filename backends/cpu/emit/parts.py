"""Axes that number the parts of a concatenation: each element of the result chooses its part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from torch_mlir import ir

from shardc.backends.body.graph import Generic
from shardc.backends.body.linear import Axis
from shardc.backends.body.roots import Reads, Root
from shardc.dialects.kern.generic import loop_of
from shardc.dialects.kern.size import AnySize

MAX_PARTS = 16
"""Of all such axes of a nest together: each part is a copy of the loop's body."""

CASTS = ("arith.index_cast", "arith.trunci", "arith.extsi")


def part_axes(members: list[Root], reads: dict[Root, Reads], sizes: Mapping[Axis, AnySize]) -> set[Axis]:
    """Axes whose position is compared with numbers: given a number, each part is a plain vector loop."""
    found: set[Axis] = set()
    for root in members:
        bodies = [(v.generic, v.generic.dims_at(v.number, index)) for v, index in reads[root].between]
        bodies += [(root.generic, root.dims)] if root.generic else []
        for generic, dims in bodies:
            found |= {a for dim in _chosen_by(generic) for a, _ in dims[dim].terms if a in sizes}
    static = all(isinstance(sizes[a], int) for a in found)
    return found if static and prod(sizes[a] for a in found) <= MAX_PARTS else set()


def _chosen_by(generic: Generic) -> Iterator[int]:
    """Dims of ``generic`` whose index is compared with numbers."""
    for op in generic.body_ops:
        if (loop := loop_of(op.results[0])) is not None and _is_compared(op.results[0]):
            yield loop


def _is_compared(value: ir.Value) -> bool:
    """Whether every use of ``value`` is a comparison with a number."""
    for user in (use.owner.operation for use in value.uses):
        if user.name == "arith.cmpi":
            same = any(_is_number(v) for v in user.operands)
        else:
            same = user.name in CASTS and _is_compared(user.results[0])
        if not same:
            return False
    return True


def _is_number(value: ir.Value) -> bool:
    return not isinstance(value, ir.BlockArgument) and value.owner.operation.name == "arith.constant"
