"""Choice of kernels' results that are written in place, into the memory of an operand.

The operand is an argument that the program finally overwrites, or a value without other readers. Flat kernels
qualify, because they read an element of each operand before they write the same element of a result. So do
sums at computed indices, whose result equals their initial value except in the indexed rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from torch_mlir import ir

from shardc.dialects.kern.kernel import (
    IN_PLACE,
    KernelOp,
    kernel_body,
    kernel_operands,
    kernel_results,
    operand_types,
    result_types,
)
from shardc.dialects.kern.scatter_add import ScatterAddOp
from shardc.passes.fuse.bodies.flat import FLAT
from shardc.passes.fuse.reading.values import owner_of
from shardc.runtime.check import STATE_ROLES

_CALLS = ("addmm", "baddbmm", "bmm", "convolution", "mm")
_MAKES_NEW = frozenset((KernelOp.OPERATION_NAME, *(f"torch.aten.{name}" for name in _CALLS)))


def place_results(kernels: Iterable[ir.Operation], writes: Mapping[ir.Value, ir.Value]) -> None:
    """Set ``in_place`` on ``kernels``. ``writes``: new value -> the argument that takes it."""
    for op in kernels:
        numbers = [n for pair in _pairs(op, writes) for n in pair]
        if numbers:
            op.attributes[IN_PLACE] = ir.DenseI64ArrayAttr.get(numbers, op.context)


def state_writes(function: ir.Operation) -> list[tuple[int, int]]:
    """Return (argument, result) pairs with the same role and name: a step's state and its new value."""
    state = {key: number for number, key in enumerate(_edges(function, "arg_attrs")) if key[0] in STATE_ROLES}
    results = enumerate(_edges(function, "res_attrs"))
    return [(state[key], number) for number, key in results if key in state]


def _edges(function: ir.Operation, attribute: str) -> list[tuple[str, str]]:
    """Return role and name of each argument or result."""
    found = ir.ArrayAttr(function.attributes[attribute]) if attribute in function.attributes else []
    return [(_text(a, "dist.role"), _text(a, "dist.name")) for a in map(ir.DictAttr, found)]


def _text(attributes: ir.DictAttr, name: str) -> str:
    return ir.StringAttr(attributes[name]).value if name in attributes else ""


def _pairs(op: ir.Operation, writes: Mapping[ir.Value, ir.Value]) -> list[tuple[int, int]]:
    """Return pairs (result, operand), each number once. Writes to arguments have priority."""
    operands, results = kernel_operands(op), kernel_results(op)
    takes, makes = operand_types(op), result_types(op)
    free = {number: operands[number] for number in _replaceable(op) if operands.count(operands[number]) == 1}
    found: dict[int, int] = {}
    for written in (True, False):
        for number, result in enumerate(results):
            target = writes.get(result)
            if written != (target is not None):
                continue
            for at, operand in free.items():
                wanted = _dies(operand) if target is None else target == operand
                if number not in found and takes[at] == makes[number] and makes[number].shape and wanted:
                    found[number] = at
                    del free[at]
                    break
    return sorted(found.items())


def _replaceable(op: ir.Operation) -> Sequence[int]:
    """Return the numbers of the operands that may be overwritten by a result of their type."""
    if FLAT in op.attributes:
        return range(len(operand_types(op)))
    _, ops, _ = kernel_body(op)
    found = next((inner for inner in ops if inner.name == ScatterAddOp.OPERATION_NAME), None)
    starts = [] if found is None else list(found.operands)[2:]
    alone = (v for v in starts if isinstance(v, ir.BlockArgument) and len(list(v.uses)) == 1)
    return [v.arg_number for v in alone]


def _dies(value: ir.Value) -> bool:
    """Return whether a value owns its memory and only one kernel reads it."""
    made, uses = owner_of(value), [use.owner for use in itertools.islice(value.uses, 2)]
    if made is not None and made.name == "torch.prim.TupleUnpack":
        made = owner_of(made.operands[0])
    one = len(uses) == 1 and uses[0].name == "torch.prim.TupleConstruct"
    return made is not None and one and made.name in _MAKES_NEW
