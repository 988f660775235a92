"""``dist.reduce``: whether a partial value is summed before or after a cast of it."""

from __future__ import annotations

from typing import Literal

from torch_mlir import ir

REDUCE = "dist.reduce"
Place = Literal["after", "before"]
"""``after``: the cast's result is summed, although it is larger. ``before``: its operand is summed."""


def set_place(op: ir.Operation, place: Place) -> None:
    """Set the place of the sum."""
    op.attributes[REDUCE] = ir.StringAttr.get(place, op.context)


def sum_is(place: Place, op: ir.Operation) -> bool:
    """Return whether an op has this place of the sum."""
    return REDUCE in op.attributes and op.attributes[REDUCE].value == place
