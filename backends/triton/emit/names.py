"""Names of a kernel's tensors from the user's program, and the kernel's title."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch_mlir import ir

from shardc.backends.body.extract import kernel_name as symbol_of
from shardc.dialects.kern.kernel import kernel_name, kernel_operands, operand_types, result_types
from shardc.dialects.location import source_line


@dataclass(frozen=True)
class Said:
    """Name and title of a module, and names of the tensors that it reads and computes."""

    name: str
    title: str
    arguments: list[str]
    results: list[str]


def said_of(kernel: ir.Operation) -> Said:
    """Return the names of a kernel in a program."""
    arguments = [_value_name(v) for v in kernel_operands(kernel)[: len(operand_types(kernel))]]
    return Said(symbol_of(kernel), title(kernel), arguments, ["out"] * len(result_types(kernel)))


def said_of_function(function: ir.Operation) -> Said:
    """Return the names of an extracted function alone, which has no names of tensors."""
    name = ir.StringAttr(function.attributes["sym_name"]).value
    tensors = [a for a in function.regions[0].blocks[0].arguments if isinstance(a.type, ir.RankedTensorType)]
    results = list(function.regions[0].blocks[0].operations)[-1].operation.operands
    return Said(name, f"{name}.", ["x"] * len(tensors), ["out"] * len(results))


def title(kernel: ir.Operation) -> str:
    """Return a title such as ``layer_norm_0: native_layer_norm, gelu``, with the user's source line."""
    given = kernel.attributes["kern.ops"] if "kern.ops" in kernel.attributes else ()
    ops = [ir.StringAttr(t).value for t in given]
    names = ", ".join(dict.fromkeys(re.sub(r"^aten\.|\.\w+$", "", op) for op in ops))
    line = user_line(kernel.location)
    text = f"{kernel_name(kernel)}{': ' + names if names else ''}."
    if len(text) > 115:
        text = text[:112] + "..."
    return f"{text}{chr(10) * 2 + 'From ' + line + '.' + chr(10) if line else ''}"


def user_line(location: ir.Location) -> str | None:
    """Return ``file:line`` of the user's program, if known."""
    line = source_line(location)
    return None if line is None or line.startswith("<") else line


def _value_name(value: ir.Value) -> str:
    """Return ``weight`` for ``model.layers.0.norm.weight``, ``mm`` for a matmul's result."""
    if isinstance(value, ir.BlockArgument):
        function = value.owner.owner
        if "arg_attrs" in function.attributes:
            found = ir.DictAttr(ir.ArrayAttr(function.attributes["arg_attrs"])[value.arg_number])
            if "dist.name" in found:
                return _last(ir.StringAttr(found["dist.name"]).value)
        return "x"
    op = value.owner.operation
    if op.name == "torch.prim.TupleUnpack":
        return "x"
    name = op.name.removeprefix("torch.").removeprefix("aten.").partition(".")[0]
    return re.sub(r"\W", "_", name).strip("_")


def _last(name: str) -> str:
    """Return the last part of a name that is not a number, without a suffix such as ``_1``."""
    parts = [p for p in re.split(r"[./]", name) if p and not p.isdigit()]
    return re.sub(r"_\d+$", "", parts[-1] if parts else name) or "x"
