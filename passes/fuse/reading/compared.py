"""Calls whose results are compared for equality, so that each kernel must compute them with the same bits.

The gradient of ``amax`` goes to the elements that equal the maximum. If the backward computes the elements
again, by another approximation of ``exp`` than the forward, none may equal it: the gradient is then 0 / 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch_mlir import ir

from shardc.dialects.aten.schema import UnknownOperator, overload
from shardc.passes.fuse.reading.values import owner_of, target_of
from shardc.passes.fuse.reading.view import CUTS, VIEWS

_COMPARE = frozenset(f"aten.{name}" for name in ("eq", "ne", "amax", "amin", "aminmax", "max", "min"))
"""Names of ops that compare for equality, or find elements to which a gradient compares."""


def compared(steps: Sequence[ir.Operation]) -> set[ir.Operation]:
    """Return the ops whose results reach an equality, or an extremum, through views and pointwise ops."""
    found: set[ir.Operation] = set()
    for op in reversed(steps):
        name = ".".join(target_of(op).split(".")[:2])
        if name in _COMPARE or (op in found and _passes_on(target_of(op))):
            found.update(owner for v in op.operands if (owner := owner_of(v)) is not None)
    return found


def _passes_on(target: str) -> bool:
    if target in VIEWS or target in CUTS:
        return True
    try:
        return target.startswith("aten.") and torch.Tag.pointwise in overload(target).tags
    except UnknownOperator:
        return False
