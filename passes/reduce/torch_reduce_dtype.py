"""``torch-reduce-dtype``: sums 16-bit gradients over devices and micro-batches in f32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import is_constant, target_name
from shardc.dialects.aten.types import read_type
from shardc.passes.manager.attributes import drop_attributes, observed
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import find_function
from shardc.passes.manager.sum_place import set_place
from shardc.passes.partition.local_call import CallWriter, type_of

NARROW = (torch.bfloat16, torch.float16)
WIDE = torch.float32


@dataclass(frozen=True)
class TorchReduceDtype(Pass):
    """Casts 16-bit gradients to f32 and back, and places sums over devices between the casts.

    ``dist.reduce`` is ``after`` on the first cast, through which partial sums pass, and ``before`` on the
    second. If a gradient is already a cast to 32 bits, as under autocast, the sum is placed after that cast.
    The equivalent in FSDP2 is ``MixedPrecisionPolicy(reduce_dtype=torch.float32)``.
    """

    name: ClassVar[str] = "torch-reduce-dtype"

    def run(self, module: ir.Module) -> None:
        function = find_function(module)
        if function is None:
            return
        block = function.regions[0].blocks[0]
        builder = CallBuilder(block)
        for op in [view.operation for view in block.operations]:
            for number, names in _gradients(op):
                _widen(builder, op, number, names)


def _gradients(op: ir.Operation) -> Iterator[tuple[int, list[str]]]:
    """Yield the numbers of an op's results that are gradients, with their names."""
    if is_constant(op) or "dist.name" not in op.attributes:
        return
    found: dict[int, list[str]] = {}
    for name, number in observed(op):
        if name.startswith("grad:"):
            found.setdefault(number, []).append(name)
    yield from found.items()


def _widen(builder: CallBuilder, op: ir.Operation, number: int, names: list[str]) -> None:
    value = op.results[number]
    type_ = read_type(value.type)
    if type_ is None:
        return
    if type_.dtype in NARROW:
        _cast_around(builder, value, names)
    elif type_.dtype == WIDE and _is_cast(op):
        source = read_type(op.operands[0].type)
        if source is not None and source.dtype in NARROW:
            set_place(op, "after")


def _is_cast(op: ir.Operation) -> bool:
    return op.name.startswith("torch.") and target_name(op) == "aten._to_copy"


def _cast_around(builder: CallBuilder, value: ir.Value, names: list[str]) -> None:
    """Redirect all readers of a gradient to its value after the casts to f32 and back."""
    op = value.owner.operation
    write = CallWriter.at(builder, op, ir.InsertionPoint.after(op))
    readers = [(use.owner.operation, use.operand_number) for use in value.uses]
    wide = write.cast(value, WIDE)
    narrow = write.cast(wide, type_of(value).dtype)
    set_place(wide.owner, "after")
    set_place(narrow.owner, "before")
    for reader, position in readers:
        reader.operands[position] = narrow
    others = [f"{name}#{n}" for name, n in observed(op) if name not in names]
    drop_attributes(op, "dist.name")
    if others:
        op.attributes["dist.name"] = ir.StringAttr.get(",".join(others), op.context)
    narrow.owner.attributes["dist.name"] = ir.StringAttr.get(",".join(names), op.context)
