"""Names of the tensors that a collective moves: arguments of the step, gradients, or new state."""

from __future__ import annotations

from collections.abc import Iterable

from torch_mlir import ir

from shardc.passes.manager.attributes import edge_key

_PACKS = {
    "torch.prim.ListConstruct",
    *(f"torch.aten.{name}" for name in ("reshape", "view", "cat", "t", "transpose.int", "permute", "clone")),
    *(f"torch.aten.{name}" for name in ("_to_copy", "slice.Tensor", "constant_pad_nd")),
}
"""Ops that only pack tensors, or change their layout or dtype."""
_GRADIENT, _LOOP, _SUM = "grad:", "dist.loop", "torch.aten.add.Tensor"


def moved_text(value: ir.Value, function: ir.Operation) -> str:
    """Return text such as ``0.weight and 3 more``, or ``gradient of 0.weight``.

    Values are followed through packing, and into and out of loops. It is empty for activations.
    """
    found: dict[str, None] = {}
    waiting, seen = [value], set[ir.Value]()
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        if isinstance(at.owner, ir.Block):
            number = ir.BlockArgument(at).arg_number
            if at.owner == function.regions[0].blocks[0]:
                found[edge_key(function, "arg_attrs", number)[1]] = None
            elif at.owner.owner.name == _LOOP:
                waiting.append(_elements(at.owner.owner.operands)[number])
        elif parameter := _gradient_of(at.owner.operation):
            found[f"gradient of {parameter}"] = None
        elif at.owner.operation.name in _PACKS:
            waiting += reversed([*at.owner.operation.operands])
        else:
            waiting += _made_in_loop(at)
    return _listed(found)


def updated_text(values: Iterable[ir.Value], function: ir.Operation) -> str:
    """Return text such as ``new 0.weight and 3 more`` or ``loss`` for values that a step returns.

    It is empty for other values. Values are followed through packing.
    """
    found: dict[str, None] = {}
    *_, end = function.regions[0].blocks[0].operations
    waiting = [*values]
    while waiting:
        at = waiting.pop()
        for use in at.uses:
            reader = use.owner.operation
            if reader == end.operation:
                role, name = edge_key(function, "res_attrs", use.operand_number)
                found[name if role in ("loss", "output") else f"new {name}"] = None
            elif reader.name in _PACKS:
                waiting += reader.results
    return _listed(dict.fromkeys(sorted(found)))


def _listed(names: Iterable[str]) -> str:
    first, *more = [*names] or [""]
    return f"{first} and {len(more)} more" if more else first


def _made_in_loop(value: ir.Value) -> list[ir.Value]:
    """Return what a loop's body yields as ``value``, or what a sum over iterations adds; else nothing."""
    op = value.owner.operation
    if op.name == _SUM:
        block = op.operands[0].owner
        is_carried = isinstance(block, ir.Block) and block.owner.name == _LOOP
        return [op.operands[1]] if is_carried else []
    if op.name != "torch.prim.TupleUnpack" or isinstance(op.operands[0].owner, ir.Block):
        return []
    made = op.operands[0].owner.operation
    if made.name != _LOOP:
        return []
    *_, end = made.regions[0].blocks[0].operations
    packed = end.operation.operands[[*made.results].index(op.operands[0])]
    return [_elements([packed])[ir.OpResult(value).result_number]]


def _elements(tuples: Iterable[ir.Value]) -> list[ir.Value]:
    """Return the elements of tuples, in order."""
    return [element for packed in tuples for element in packed.owner.operation.operands]


def _gradient_of(op: ir.Operation) -> str:
    """Return the name of the parameter whose gradient an op makes; empty if none."""
    named = ir.StringAttr(op.attributes["dist.name"]).value if "dist.name" in op.attributes else ""
    found = (name for name in named.split(",") if name.startswith(_GRADIENT))
    return next(found, "").removeprefix(_GRADIENT).partition("#")[0]
