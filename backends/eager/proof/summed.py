"""Magnitude of the terms that were summed for a gradient, to which its rounding error is relative.

A gradient may be zero in exact arithmetic, because terms of both signs cancel, as for a bias before a batch
norm. In floats it is then just the rounding error, which is relative to the sum of the terms' magnitudes and
not to the result (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2).
"""

from __future__ import annotations

from collections.abc import Collection

from torch_mlir import ir

from shardc.backends.eager.program import find_step
from shardc.dialects.aten.types import read_type
from shardc.passes.manager.attributes import observed
from shardc.passes.manager.program import copy_module

SUMMED = "summed"
"""Role of the magnitudes in the program that is made here."""
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
"""Ops whose results are elements of the first operand, scaled by at most one number."""
_ADD = "torch.aten.add.Tensor"
_SUMS = frozenset(
    f"torch.aten.{name}" for name in ("sum", "sum.dim_IntList", "mm", "bmm", "convolution_backward")
)
"""Ops that sum products of their operands. On absolute values they give the sum of the terms' magnitudes."""


def with_summed(module: ir.Module, names: Collection[str]) -> ir.Module:
    """Return a copy of the global program that also computes the summed magnitude of the gradients ``names``.

    It is observed as ``summed:w`` beside ``grad:w``. Gradients without a known sum have none.
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
    """Insert the sum of the magnitudes of the terms of ``value``; return None if no sum is known."""
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
    elif op.name == _ADD:  # terms of averaged micro-batches
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
    """Insert ``|value|`` right after ``value``."""
    loc = ir.Location.unknown(value.context)
    op = ir.Operation.create("torch.aten.abs", [value.type], [value], loc=loc)
    if isinstance(value.owner, ir.Block):
        ir.InsertionPoint.at_block_begin(value.owner).insert(op)
    else:
        ir.InsertionPoint(value.owner.operation).insert(op)
        op.move_after(value.owner.operation)
    return op.result
