"""Attributes and bodies that the builders of ``dist`` ops share."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from torch_mlir import ir


class At(TypedDict):
    """Location and insertion point, which all builders take as keyword arguments."""

    loc: ir.Location
    ip: ir.InsertionPoint


def i64(value: int, context: ir.Context) -> ir.IntegerAttr:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context), value)


def string(text: str, context: ir.Context) -> ir.StringAttr:
    return ir.StringAttr.get(text, context)


def attribute(value: object, context: ir.Context) -> ir.Attribute:
    """Convert an integer, a string, a mapping with string keys, or a list of those to an MLIR attribute."""
    if isinstance(value, int):
        return i64(value, context)
    if isinstance(value, str):
        return string(value, context)
    if isinstance(value, Mapping):
        return ir.DictAttr.get(attributes(context, **value), context)
    if isinstance(value, Iterable) and not isinstance(value, ir.Attribute):
        return ir.ArrayAttr.get([attribute(item, context) for item in value], context)
    assert isinstance(value, ir.Attribute), f"no attribute for {value!r}"
    return value


def attributes(context: ir.Context, **values: object) -> dict[str, ir.Attribute]:
    """Return ``values`` as attributes of an op; values that are None are left out."""
    return {name: attribute(value, context) for name, value in values.items() if value is not None}


def segments(context: ir.Context, *groups: Sequence[object]) -> ir.DenseI32ArrayAttr:
    """Return the segment sizes of an op: the number of operands or results in each group."""
    return ir.DenseI32ArrayAttr.get([len(group) for group in groups], context)


def empty_body(op: ir.Operation, arguments: Sequence[ir.Type]) -> ir.Block:
    """Append a block with arguments of these types to an op's only region, and return it."""
    return op.regions[0].blocks.append(*arguments, arg_locs=[op.location] * len(arguments))
