"""Arithmetic on sizes that are known only at run time, which symbolic graphs of ``torch.compile`` hold between ATen
calls.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

aten = torch.ops.aten

_OPERATORS = {
    operator.add: (aten.add.int, "+"),
    operator.sub: (aten.sub.int, "-"),
    operator.mul: (aten.mul.int, "*"),
    operator.floordiv: (aten.floordiv.int, "//"),
    operator.mod: (aten.remainder.int, "%"),
}
_SIZE = "aten.size.int"
_NEGATIVE = "aten.neg.int"
_SIGNS = {str(op): sign for op, sign in _OPERATORS.values()}
_OVERLOADS = {function: op for function, (op, _) in _OPERATORS.items()} | {
    aten.sym_size.int: aten.size.int,
    operator.neg: aten.neg.int,
}


def overload_of(target: Any) -> Any:
    """The ATen operator that stands in the torch dialect for a function of integers; None if there is none."""
    return _OVERLOADS.get(target)


def is_integer(target: str) -> bool:
    """Whether the ATen operator called ``target`` makes one of these integers."""
    return target in (_SIZE, _NEGATIVE) or target in _SIGNS


def text_of(target: str, args: list[str]) -> str:
    """The call as Python: ``a * 2``, ``x.size(0)``."""
    if target == _SIZE:
        return f"{args[0]}.size({args[1]})"
    if target == _NEGATIVE:
        return f"-{args[0]}"
    return f"{args[0]} {_SIGNS[target]} {args[1]}"
