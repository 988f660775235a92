"""``dist.reduce``: where a cast stands to the sum, over devices or micro-batches, of what it reads."""

from __future__ import annotations

from typing import Literal

from torch_mlir import ir

REDUCE = "dist.reduce"
Place = Literal["after", "before"]
"""``after``: what a cast makes is summed, though it is larger. ``before``: what it reads is."""


def set_place(op: ir.Operation, place: Place) -> None:
    """Say where the sum stands."""
    op.attributes[REDUCE] = ir.StringAttr.get(place, op.context)


def sum_is(place: Place, op: ir.Operation) -> bool:
    """Whether an op says that the sum stands there."""
    return REDUCE in op.attributes and op.attributes[REDUCE].value == place
