"""Writer of the calls in split forms: reductions that keep their dims, and blocks of a dim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch_mlir import ir

from shardc.dialects.aten.call import OpCall
from shardc.passes.partition.local_call import CallWriter, type_of

Number = int | float
PLACE = torch.int32
"""Dtype in which indices along a dim are sent."""


def has_places(call: OpCall) -> bool:
    """Return whether the indices along a call's dim fit in that dtype."""
    shape = call["self"].shape
    return not shape or shape[call["dim"]] <= torch.iinfo(PLACE).max


@dataclass
class SplitWriter(CallWriter):
    """Writer of calls that replace a call split ``ways`` ways; ``made`` lists them."""

    ways: int = 1
    made: list[ir.Operation] = field(default_factory=list)

    def call(self, target: str, *args: object) -> ir.Value:
        return self.calls(target, *args)[0]

    def calls(self, target: str, *args: object) -> Sequence[ir.Value]:
        """Build a call and return all its results."""
        first = super().call(target, *args)
        self.made.append(first.owner)
        return first.owner.results

    def shape(self, value: ir.Value) -> tuple[int, ...]:
        return type_of(value).shape

    def dim(self, value: ir.Value, dim: int) -> int:
        """Return ``dim`` as a non-negative number."""
        return dim % len(self.shape(value))

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.call("aten.add.Tensor", a, b, 1)

    def sub(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.call("aten.sub.Tensor", a, b, 1)

    def mul(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.call("aten.mul.Tensor", a, b)

    def exp(self, value: ir.Value) -> ir.Value:
        return self.call("aten.exp", value)

    def log(self, value: ir.Value) -> ir.Value:
        return self.call("aten.log", value)

    def largest(self, value: ir.Value, *dims: int) -> ir.Value:
        return self.call("aten.amax", value, dims, True)

    def least(self, value: ir.Value, *dims: int) -> ir.Value:
        return self.call("aten.amin", value, dims, True)

    def sum(self, value: ir.Value, *dims: int, keepdim: bool = True) -> ir.Value:
        """Return the sum over ``dims``; ``value`` itself if there are none."""
        return self.call("aten.sum.dim_IntList", value, dims, keepdim) if dims else value

    def mean(self, value: ir.Value, *dims: int) -> ir.Value:
        """Return the sum divided by the number of elements, since a sum may be partial."""
        count = type_of(value).numel // (type_of(total := self.sum(value, *dims)).numel or 1)
        return self.call("aten.div.Scalar", total, count)

    def view(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        """Return a view with ``shape``; ``value`` itself if it has that shape."""
        return value if self.shape(value) == tuple(shape) else self.call("aten.view", value, tuple(shape))

    def without(self, value: ir.Value, *dims: int) -> ir.Value:
        """Return ``value`` without ``dims``, which have size 1."""
        return self.view(value, [n for d, n in enumerate(self.shape(value)) if d not in dims])

    def positions(self, count: int, dim: int, rank: int, step: int = 1) -> ir.Value:
        """Return ``0, step, ..., (count - 1) * step`` along ``dim`` of ``rank`` dims, in the dtype of
        indices.
        """
        if step == 1:
            count_up = self.call("aten.arange", count, PLACE)
        else:
            count_up = self.call("aten.arange.start_step", 0, count * step, step, PLACE)
        return self.view(count_up, [count if d == dim else 1 for d in range(rank)])

    def blocks(self, value: ir.Value, dim: int) -> ir.Value:
        """Split ``dim`` in two: the blocks, one on each device, and the elements of a block."""
        shape = self.shape(value)
        return self.view(value, (*shape[:dim], self.ways, shape[dim] // self.ways, *shape[dim + 1 :]))

    def joined(self, value: ir.Value, dim: int) -> ir.Value:
        """Merge the two dims again: the inverse of :meth:`blocks`."""
        shape = self.shape(value)
        return self.view(value, (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :]))
