"""Which results of kernels take the memory of an operand: of an argument that the program ends by writing to,
and of values that nothing else reads.

Of flat kernels, which read an element of each operand before they write that element of a result, and no
other; and of sums at computed indices, whose result is what they start from but for the rows that are named.
"""

from __future__ import annotations

from collections.abc import Mapping

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
from shardc.dialects.roles import STATE_ROLES
from shardc.passes.fuse.bodies.flat import FLAT

_MAKES_NEW = frozenset(f"torch.aten.{name}" for name in ("addmm", "baddbmm", "bmm", "convolution", "mm"))


def place_results(block: ir.Block, writes: Mapping[ir.Value, ir.Value]) -> None:
    """Set ``in_place`` on kernels of ``block``. ``writes``: new value -> the argument that takes it."""
    for view in block.operations:
        op = view.operation
        if op.name == KernelOp.OPERATION_NAME:
            pairs = _pairs(op, writes)
            if pairs:
                op.attributes[IN_PLACE] = ir.DenseI64ArrayAttr.get(
                    [n for pair in pairs for n in pair], op.context
                )


def state_writes(function: ir.Operation) -> list[tuple[int, int]]:
    """(argument, result) where a step's result is its argument's new value: both have its role and name."""
    state = {key: number for number, key in enumerate(_edges(function, "arg_attrs")) if key[0] in STATE_ROLES}
    results = enumerate(_edges(function, "res_attrs"))
    return [(state[key], number) for number, key in results if key in state]


def _edges(function: ir.Operation, attribute: str) -> list[tuple[str, str]]:
    """Role and name of each argument or result."""
    attributes = function.attributes[attribute] if attribute in function.attributes else []
    return [tuple(a[key].value if key in a else "" for key in ("dist.role", "dist.name")) for a in attributes]  # type: ignore[misc]


def _pairs(op: ir.Operation, writes: Mapping[ir.Value, ir.Value]) -> list[tuple[int, int]]:
    """(result, operand), each once; writes choose first."""
    operands, results = kernel_operands(op), kernel_results(op)
    takes, makes = operand_types(op), result_types(op)
    free = {number: operands[number] for number in _replaceable(op) if operands.count(operands[number]) == 1}
    found: dict[int, int] = {}
    for written in (True, False):
        for number, result in enumerate(results):
            for at, operand in free.items():
                target = writes.get(result)
                wanted = (
                    target is not None and target == operand if written else target is None and _dies(operand)
                )
                if number not in found and takes[at] == makes[number] and makes[number].shape and wanted:
                    found[number] = at
                    del free[at]
                    break
    return sorted(found.items())


def _replaceable(op: ir.Operation) -> range:
    """The numbers of the operands that may be overwritten with a result of their type."""
    if FLAT in op.attributes:
        return range(len(operand_types(op)))
    _, (first, *_), _ = kernel_body(op)
    return range(2, len(first.operands)) if first.name == ScatterAddOp.OPERATION_NAME else range(0)


def _dies(value: ir.Value) -> bool:
    """Whether it is memory of its own that one kernel alone reads."""
    if isinstance(value.owner, ir.Block):
        return False
    made, uses = value.owner, [use.owner for use in value.uses]
    if made.name == "torch.prim.TupleUnpack":
        made = made.operands[0].owner
    one = len(uses) == 1 and uses[0].name == "torch.prim.TupleConstruct"
    return one and (made.name == KernelOp.OPERATION_NAME or made.name in _MAKES_NEW)
