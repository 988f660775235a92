"""Numbers of forward ops at level 1, by which a budget's solution names the ops to recompute."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from torch_mlir import ir

from shardc.dialects.aten.call import is_constant
from shardc.passes.manager.attributes import drop_attributes, i64, phase_of
from shardc.passes.manager.program import find_function
from shardc.passes.recompute.clones import Clones
from shardc.passes.recompute.policies import PHASE
from shardc.passes.recompute.torch_recompute import MODULE, call_of

NUMBER = "dist.forward"
"""Attribute of a forward op: its number."""


def number_forward(module: ir.Module) -> list[str]:
    """Number the forward ops. Return, by number, the call of a marked module that an op belongs to, or "".

    Removes these marks.
    """
    calls: list[str] = []
    for op in _ops(module):
        if phase_of(op) == "forward":
            op.attributes[NUMBER] = i64(len(calls), module.context)
            calls.append(call_of(op))
        drop_attributes(op, MODULE)
    return calls


def compute_again(module: ir.Module, again: Collection[int]) -> None:
    """Clone the ops with these numbers before their readers in backward, and remove all numbers."""
    number_forward(module)
    ops = list(_ops(module))
    values = {value for op in ops if number_of(op) in again for value in op.results}
    for op in ops:
        drop_attributes(op, NUMBER)
    clones = Clones(values.__contains__)
    for op in ops:
        if phase_of(op) in ("backward", PHASE):
            clones.read_clones(op)


def number_of(op: ir.Operation) -> int | None:
    """Return the number of a forward op; None for other ops."""
    return ir.IntegerAttr(op.attributes[NUMBER]).value if NUMBER in op.attributes else None


def _ops(module: ir.Module) -> Iterator[ir.Operation]:
    function = find_function(module)
    if function is not None:
        for view in function.regions[0].blocks[0].operations:
            if not is_constant(view.operation):
                yield view.operation
