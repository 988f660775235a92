"""Packing many values into one ``!torch.tuple``, and back.

A group of operands of a Python-defined op has one type for all (IRDL binds a constraint once), so ops that
take values of several types, as loops do, take a tuple. An empty group is no operand: an empty tuple does not
parse back.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Unpack

from torch_mlir import ir

from shardc.dialects.dist.build import At

_PREFIX = "!torch.tuple<"


def tuple_type(types: Sequence[ir.Type], context: ir.Context) -> ir.Type:
    """The tuple of ``types``, which are all of the torch dialect."""
    inner = ", ".join(str(t).removeprefix("!torch.") for t in types)
    return ir.Type.parse(f"{_PREFIX}{inner}>", context)


def element_types(type_: ir.Type) -> list[ir.Type] | None:
    """What a tuple is made of, None if ``type_`` is no tuple."""
    texts = _elements(str(type_))
    return None if texts is None else [ir.Type.parse(text, type_.context) for text in texts]


def pack(values: Sequence[ir.Value], **at: Unpack[At]) -> list[ir.Value]:
    """One tuple of ``values``, as a list of one; no value at all if there are none."""
    if not values:
        return []
    type_ = tuple_type([v.type for v in values], at["loc"].context)
    return [ir.Operation.create("torch.prim.TupleConstruct", [type_], list(values), **at).result]


def unpack(value: ir.Value | None, **at: Unpack[At]) -> list[ir.Value]:
    """The elements of a tuple; none of no tuple."""
    if value is None:
        return []
    types = element_types(value.type)
    if types is None:
        raise TypeError(f"{value.type} is not a tuple")
    return list(ir.Operation.create("torch.prim.TupleUnpack", types, [value], **at).results)


def packed(values: Sequence[ir.Value]) -> list[ir.Value]:
    """What a group of operands, one tuple or none, is made of."""
    return [v for value in values for v in value.owner.operation.operands]


def unpacked(values: Sequence[ir.Value]) -> list[ir.Value]:
    """What a group of results, one tuple or none, is taken apart to; nothing if it never is."""
    users = (use.owner.operation for v in values for use in v.uses)
    found = next((user for user in users if user.name == "torch.prim.TupleUnpack"), None)
    return [] if found is None else list(found.results)


@lru_cache(maxsize=4096)
def _elements(text: str) -> tuple[str, ...] | None:
    """The bindings have no accessors for tuples, hence the text: split at the commas outside brackets."""
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
