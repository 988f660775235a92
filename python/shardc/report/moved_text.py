"""Names of the tensors that a collective moves: arguments of the step, or gradients of parameters."""

from __future__ import annotations

from torch_mlir import ir

from shardc.passes.manager.attributes import edge_key

_PACKS = {
    "torch.prim.ListConstruct",
    *(f"torch.aten.{name}" for name in ("reshape", "view", "cat", "t", "transpose.int", "permute", "clone")),
    *(f"torch.aten.{name}" for name in ("_to_copy", "slice.Tensor", "constant_pad_nd")),
}
"""Ops that only pack tensors, or change their layout or dtype."""
_GRADIENT = "grad:"


def moved_text(value: ir.Value, function: ir.Operation) -> str:
    """Return text such as ``0.weight and 3 more``, or ``gradient of 0.weight``.

    It is empty for activations, and for arguments of a loop's body.
    """
    found: dict[str, None] = {}
    waiting = [value]
    while waiting:
        at = waiting.pop()
        if isinstance(at.owner, ir.Block):
            if at.owner == function.regions[0].blocks[0]:
                found[edge_key(function, "arg_attrs", ir.BlockArgument(at).arg_number)[1]] = None
        elif parameter := _gradient_of(at.owner.operation):
            found[f"gradient of {parameter}"] = None
        elif at.owner.operation.name in _PACKS:
            waiting += reversed([*at.owner.operation.operands])
    first, *more = found or [""]
    return f"{first} and {len(more)} more" if more else first


def _gradient_of(op: ir.Operation) -> str:
    """Return the name of the parameter whose gradient an op makes; empty if none."""
    named = ir.StringAttr(op.attributes["dist.name"]).value if "dist.name" in op.attributes else ""
    found = (name for name in named.split(",") if name.startswith(_GRADIENT))
    return next(found, "").removeprefix(_GRADIENT).partition("#")[0]
