"""How much was summed to make a gradient: what its rounding error is relative to.

A gradient may be zero in exact arithmetic, as that of a bias before a batch norm: terms of both signs that
cancel. What floats leave of it is the rounding error of the terms and of the sum, which is relative to the
sum of the terms' magnitudes, and not to the result (Higham, Accuracy and Stability of Numerical Algorithms,
section 4.2).
"""

from __future__ import annotations

from collections.abc import Collection

from torch_mlir import ir

from shardc.backends.eager.program import find_step
from shardc.dialects.aten.types import read_type
from shardc.passes.manager.attributes import observed
from shardc.passes.manager.program import copy_module

SUMMED = "summed"
"""The role under which the program made here names the magnitudes."""
GRAD = "grad"

_LINEAR = frozenset(
    f"torch.aten.{name}"
    for name in (
        "view",
        "_unsafe_view",
        "reshape",
        "t",
        "transpose.int",
        "permute",
        "squeeze",
        "squeeze.dim",
        "unsqueeze",
        "slice.Tensor",
        "select.int",
        "clone",
        "_to_copy",
        "to.dtype",
        "mul.Scalar",
    )
)
"""Ops that hand on elements of their first operand, each times one number at most."""
_ADD = "torch.aten.add.Tensor"
_SUMS = frozenset(
    f"torch.aten.{name}" for name in ("sum", "sum.dim_IntList", "mm", "bmm", "convolution_backward")
)
"""Ops that sum products of their operands: on magnitudes they make the sum of the terms' magnitudes."""


def with_summed(module: ir.Module, names: Collection[str]) -> ir.Module:
    """A copy of the global program that also makes, for each gradient of ``names``, what was summed.

    It is observed as ``summed:w`` beside ``grad:w``. Gradients that no known sum makes have none.
    """
    made = copy_module(module)
    step = find_step(made)
    assert step is not None
    for op in [view.operation for view in step.regions[0].blocks[0].operations]:
        for name, number in observed(op):
            role, _, parameter = name.partition(":")
            if role == GRAD and parameter in names:
                _add_summed(op.results[number], f"{SUMMED}:{parameter}")
    return made


def _add_summed(value: ir.Value, name: str) -> None:
    made = _summed(value)
    if made is None:
        return
    copied = made.owner.operation
    number = next(i for i, result in enumerate(copied.results) if result == made)
    copied.attributes["dist.name"] = ir.StringAttr.get(f"{name}#{number}" if number else name, value.context)


def _summed(value: ir.Value) -> ir.Value | None:
    """The sum of the magnitudes of the terms of ``value``, made behind it; None where no sum is known."""
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    types = [type_ for v in op.operands if (type_ := read_type(v.type)) is not None]
    if op.name in _SUMS and not any(type_.dtype.is_complex for type_ in types):
        operands = [_magnitude(v) if read_type(v.type) is not None else v for v in op.operands]
    elif op.name in _LINEAR:
        first = _summed(op.operands[0])
        if first is None:
            return None
        operands = [first, *list(op.operands)[1:]]
    elif op.name == _ADD:  # the terms of micro-batches that are averaged
        terms = [_summed(v) for v in list(op.operands)[:2]]
        known = [term for term in terms if term is not None]
        if len(known) < len(terms):
            return None
        operands = [*known, op.operands[2]]
    else:
        return None
    copied = op.clone(ip=ir.InsertionPoint(op)).operation
    copied.move_after(op)
    for number, operand in enumerate(operands):
        copied.operands[number] = operand
    if "dist.name" in copied.attributes:
        del copied.attributes["dist.name"]
    return copied.results[list(op.results).index(value)]


def _magnitude(value: ir.Value) -> ir.Value:
    """``|value|``, right behind ``value``."""
    loc = ir.Location.unknown(value.context)
    op = ir.Operation.create("torch.aten.abs", [value.type], [value], loc=loc)
    if isinstance(value.owner, ir.Block):
        ir.InsertionPoint.at_block_begin(value.owner).insert(op)
    else:
        ir.InsertionPoint(value.owner.operation).insert(op)
        op.move_after(value.owner.operation)
    return op.result
