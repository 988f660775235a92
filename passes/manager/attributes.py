"""Reading and writing attributes of ops, and of a function's arguments and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch_mlir import ir

SHARE = "dist.share"
"""Attribute of an input that is whole on each rank: a time axis whose iterations are divided among ranks.
Each iteration reads only its block of dim 0.
"""
PER_MICRO_BATCH = "dist.per_micro_batch"
"""Attribute of a step: the number of micro-batches that run as separate programs. On an op of level 3: the
time axis whose iterations are such programs.
"""

SEQUENCE_AXES = "dist.sequence_axes"
"""Attribute of a step: the names of the axes over which its plan splits sequences."""


def i64(value: int, context: ir.Context) -> ir.IntegerAttr:
    """Return a 64-bit integer attribute."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context), value)


def phase_of(op: ir.Operation) -> str:
    """Return the op's ``dist.phase``, or an empty string."""
    phase = op.attributes.get("dist.phase")
    return "" if phase is None else phase.value


def attributes_of(op: ir.Operation, *names: str) -> dict[str, ir.Attribute]:
    """Return the op's attributes in ``names``; without names, all attributes of the dialect ``dist``."""
    chosen = names or [name for name in op.attributes if name.startswith("dist.")]
    return {name: op.attributes[name] for name in chosen if name in op.attributes}


def copy_attributes(source: ir.Operation, target: ir.Operation, *names: str) -> None:
    """Copy the attributes that :func:`attributes_of` returns for ``source`` to ``target``."""
    for name, attribute in attributes_of(source, *names).items():
        target.attributes[name] = attribute


def move_attributes(source: ir.Operation, target: ir.Operation, *names: str) -> None:
    """Move the attributes ``names`` from ``source`` to ``target``."""
    copy_attributes(source, target, *names)
    drop_attributes(source, *names)


def drop_attributes(op: ir.Operation, *names: str) -> None:
    """Delete the attributes ``names`` from the op, if it has them."""
    for name in names:
        if name in op.attributes:
            del op.attributes[name]


def observed(op: ir.Operation) -> list[tuple[str, int]]:
    """Return the names of an op's results that a user can observe, each with the result's number.

    The ``dist.name`` ``grad:w,grad:b#2`` is read as ``[("grad:w", 0), ("grad:b", 2)]``.
    """
    text = op.attributes.get("dist.name")
    parts = [] if text is None else [part.partition("#") for part in text.value.split(",")]
    return [(name.strip(), int(number or 0)) for name, _, number in parts]


def edge_attribute(function: ir.Operation, which: str, position: int, name: str) -> ir.Attribute | None:
    """Return one attribute of an argument (``which`` is ``arg_attrs``) or of a result (``res_attrs``)."""
    if which not in function.attributes:
        return None
    row = ir.DictAttr(function.attributes[which][position])
    return row[name] if name in row else None


def edge_key(function: ir.Operation, which: str, position: int) -> tuple[str, str]:
    """Return (role, name) of an argument or a result; empty strings if the IR has none."""
    role, name = (edge_attribute(function, which, position, part) for part in ("dist.role", "dist.name"))
    return ir.StringAttr(role).value if role else "", ir.StringAttr(name).value if name else ""


def edge_attributes(function: ir.Operation, which: str, position: int) -> dict[str, ir.Attribute]:
    """Return all attributes of an argument or a result."""
    if which not in function.attributes:
        return {}
    return {named.name: named.attr for named in ir.DictAttr(function.attributes[which][position])}


def set_edge_attributes(
    function: ir.Operation, which: str, rows: Iterable[Mapping[str, ir.Attribute]]
) -> None:
    """Replace the attributes of all arguments (``arg_attrs``) or results (``res_attrs``)."""
    context = function.context
    function.attributes[which] = ir.ArrayAttr.get([ir.DictAttr.get(row, context) for row in rows], context)
