"""Arithmetic on run-time numbers, such as sizes, between ATen calls of ``torch.compile``'s graphs."""

import math
import operator
from typing import Any

import torch
from torch.fx import Node

aten, prim = torch.ops.aten, torch.ops.prim

_FUNCTIONS = {
    operator.add: (aten.add.int, aten.add.float, "{} + {}"),
    operator.sub: (aten.sub.int, aten.sub.float, "{} - {}"),
    operator.mul: (aten.mul.int, aten.mul.float, "{} * {}"),
    operator.truediv: (aten.div.int, aten.div.float, "{} / {}"),
    operator.floordiv: (aten.floordiv.int, aten.floordiv.float, "{} // {}"),
    operator.mod: (aten.remainder.int, aten.remainder.float, "{} % {}"),
    operator.pow: (aten.pow.int_to_int, aten.pow.float, "pow({}, {})"),
    operator.neg: (aten.neg.int, aten.neg.float, "-{}"),
    torch.sym_min: (prim.min.int, prim.min.float, "min({}, {})"),
    torch.sym_max: (prim.max.int, prim.max.float, "max({}, {})"),
    torch.sym_float: (aten.Float.int, None, "float({})"),
    torch.sym_sqrt: (aten.sqrt.int, aten.sqrt.float, "torch.sym_sqrt({})"),
    torch.sym_int: (None, aten.Int.float, "int({})"),
    math.trunc: (None, aten.Int.float, "int({})"),
    math.floor: (None, aten.floor.float, "int({} // 1)"),
    math.ceil: (None, aten.ceil.float, "-int(-{} // 1)"),
    aten.sym_size.int: (aten.size.int, None, "{}.size({})"),
}
"""Function -> its ATen operator on integers, its ATen operator on floats, and a template of Python text."""
_TEXTS = {str(op): text for *ops, text in _FUNCTIONS.values() for op in ops if op is not None}


def overload_of(node: Node) -> Any:
    """Return the ATen operator that the torch dialect uses for a call on numbers, or None.

    If any argument is a float, it is the operator on floats.
    """
    if node.target not in _FUNCTIONS:
        return None
    of_integers, of_floats, _ = _FUNCTIONS[node.target]
    values = [arg.meta["val"] if isinstance(arg, Node) else arg for arg in node.args]
    return of_floats if any(isinstance(v, float | torch.SymFloat) for v in values) else of_integers


def is_python_number(target: str) -> bool:
    """Return whether the ATen operator ``target`` computes a run-time number of this module."""
    return target in _TEXTS


def text_of(target: str, args: list[str]) -> str:
    """Return the call as Python text: ``a * 2``, ``x.size(0)``."""
    return _TEXTS[target].format(*args)
