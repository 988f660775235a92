"""Layouts of the results of loops at level 3: reductions over iterations, and stacked blocks."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch_mlir import ir

from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.reshard_steps import AllGather, AllReduce, ToPartial
from shardc.dialects.dist.sharding import Sharding

_COMBINES = {"torch.aten.add.Tensor": "sum", "torch.aten.maximum": "max", "torch.aten.minimum": "min"}


@dataclass(frozen=True)
class Term:
    """The term that each iteration combines with a carried value, by a sum, maximum or minimum."""

    value: ir.Value
    reduction: str

    def total(self, layout: Sharding, axis: Axis, sharers: Axis | None) -> Sharding | str:
        """Return the layout of the loop's result for terms of ``layout``, or a text about their problem.

        If devices along ``sharers`` divide the iterations, the result is partial over ``sharers``.
        """
        try:
            total = AllReduce((axis,), self.reduction).apply(layout).normal()
        except ValueError:
            return f"a {self.reduction} over the iterations of {axis.name} takes a value that is {layout}"
        return total if sharers is None else ToPartial((sharers,), self.reduction).apply(total).normal()


def combined_term(carried: ir.Value, init: ir.Value, following: ir.Value, axis: Axis) -> Term | str:
    """Return the term of a carried value, or a text about the problem of its update or initial value."""
    op = None if isinstance(following.owner, ir.Block) else following.owner.operation
    if op is None or op.name not in _COMBINES or op.operands[0] != carried:
        return f"a dist.loop over {axis.name} carries a value that is not a sum, maximum or minimum of terms"
    reduction, start = _COMBINES[op.name], _start(init)
    if start is not None and start != _neutral(reduction, init):
        return f"a {reduction} over the iterations of {axis.name} starts from {start}"
    return Term(op.operands[1], reduction)


def _start(init: ir.Value) -> float | None:
    """Return the number that fills a carried tensor's initial value; None if it is not a ``full``."""
    made = None if isinstance(init.owner, ir.Block) else init.owner.operation
    if made is None or made.name != "torch.aten.full":
        return None
    number = made.operands[1].owner.operation
    return float(number.attributes["value"].value) if "value" in number.attributes else None


def _neutral(reduction: str, init: ir.Value) -> float:
    """Return the initial value of a reduction: 0, or the least or the largest value of the dtype."""
    type_ = read_type(init.type)
    assert type_ is not None
    if type_.dtype.is_floating_point or reduction == "sum":
        return {"sum": 0.0, "max": -inf, "min": inf}[reduction]
    if type_.dtype == torch.bool:
        return float(reduction == "min")
    limits = torch.iinfo(type_.dtype)
    return float(limits.min if reduction == "max" else limits.max)


def stacked(
    layout: Sharding, dim: int, axis: Axis, sharers: Axis | None, is_taken_apart: bool
) -> Sharding | str | None:
    """Return the layout of blocks of ``layout``, one from each iteration, stacked along ``dim``.

    If devices along ``sharers`` divide the iterations, each device has zeros for the iterations of others.
    The result is None for terms, for whole values, and for blocks that devices split further, which are
    stacked only for a later loop to unstack (``is_taken_apart``). It is a text if the blocks do not form the
    whole.
    """
    if all(axis != part for axes in layout.dims for part in axes):
        return None
    try:
        whole = AllGather(dim, (axis,)).apply(layout).normal()
    except ValueError:
        if is_taken_apart and axis in layout.dims[dim][:-1]:
            return None
        return f"iterations of {axis.name} are put together along dim {dim} of a value that is {layout}"
    return whole if sharers is None else ToPartial((sharers,)).apply(whole).normal()
