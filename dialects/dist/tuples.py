"""Packing values into one ``!torch.tuple``, and unpacking.

All operands in a group of a Python-defined op have one type, because IRDL binds a constraint once. So ops
that take values of several types, such as loops, take a tuple. An empty group is represented by no operand,
because the parser rejects an empty tuple.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Unpack

from torch_mlir import ir

from shardc.dialects.dist.build import At

_PREFIX = "!torch.tuple<"


def tuple_type(types: Sequence[ir.Type], context: ir.Context) -> ir.Type:
    """Return the tuple type of ``types``, which must all be types of the torch dialect."""
    inner = ", ".join(str(t).removeprefix("!torch.") for t in types)
    return ir.Type.parse(f"{_PREFIX}{inner}>", context)


def element_types(type_: ir.Type) -> list[ir.Type] | None:
    """Return the element types of a tuple type, or None if ``type_`` is not a tuple."""
    texts = _elements(str(type_))
    return None if texts is None else [ir.Type.parse(text, type_.context) for text in texts]


def pack(values: Sequence[ir.Value], **at: Unpack[At]) -> list[ir.Value]:
    """Pack ``values`` into one tuple. Return it as a list of one, or an empty list if there are no values."""
    if not values:
        return []
    type_ = tuple_type([v.type for v in values], at["loc"].context)
    return [ir.Operation.create("torch.prim.TupleConstruct", [type_], list(values), **at).result]


def unpack(value: ir.Value | None, **at: Unpack[At]) -> list[ir.Value]:
    """Unpack a tuple. Return its elements, or an empty list if ``value`` is None."""
    if value is None:
        return []
    types = element_types(value.type)
    if types is None:
        raise TypeError(f"{value.type} is not a tuple")
    return list(ir.Operation.create("torch.prim.TupleUnpack", types, [value], **at).results)


def packed(values: Sequence[ir.Value]) -> list[ir.Value]:
    """Return the values that were packed into a group of operands, which is one tuple or empty."""
    return [v for value in values for v in value.owner.operation.operands]


def unpacked(values: Sequence[ir.Value]) -> list[ir.Value]:
    """Return the values that a group of results, one tuple or none, is unpacked to; empty if it never is."""
    users = (use.owner.operation for v in values for use in v.uses)
    found = next((user for user in users if user.name == "torch.prim.TupleUnpack"), None)
    return [] if found is None else list(found.results)


@lru_cache(maxsize=4096)
def _elements(text: str) -> tuple[str, ...] | None:
    """Split a printed tuple type at the commas outside brackets, as the bindings have no accessors."""
    if not text.startswith(_PREFIX):
        return None
    inner, depth, start = text[len(_PREFIX) : -1], 0, 0
    parts: list[str] = []
    for i, char in enumerate(inner):
        depth += (char in "<[(") - (char in ">])")
        if char == "," and depth == 0:
            parts.append(inner[start:i])
            start = i + 1
    parts.append(inner[start:])
    return tuple(f"!torch.{part.strip()}" for part in parts)
