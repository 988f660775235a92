"""Which places of a dim hold an element, and tensors with such dims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv, statically_known_true

Span = tuple[sympy.Expr, sympy.Expr]


@dataclass(frozen=True, eq=False)
class Selection:
    """Of ``size`` places those where ``mask`` (bool [size]) is true, in their order.

    ``span``: they are known to be the places from its start to before its end. ``origin``: each of ``before``
    repetitions holds every place of that selection ``after`` times in a row, as a dim does that others were
    merged into.
    """

    size: int
    mask: Node
    span: Span | None = None
    origin: Selection | None = None
    before: int = 1
    after: int = 1


@dataclass(frozen=True)
class Value:
    """A tensor of fixed shape that stands for one whose shape depends on values; a selection or None for each
    dim.
    """

    node: Node
    dims: tuple[Selection | None, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.node.meta["val"].shape)


@dataclass(frozen=True)
class Number:
    """A Python number that depends on values, as a 0-d tensor."""

    node: Node


def expr_of(size: Any) -> sympy.Expr:
    """A size, a number or None's stand-in 0, as an expression in the trace's symbols."""
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def fixed(size: Any) -> int | None:
    """A size that is the same in every step, or None."""
    expr = expr_of(size)
    return int(expr) if expr.is_Integer else None


def is_symbolic(value: Any) -> bool:
    """Whether a node's value is, or has, a size or number that depends on values."""
    if isinstance(value, torch.Tensor):
        return any(fixed(n) is None for n in value.shape)
    if isinstance(value, (tuple, list)):
        return any(map(is_symbolic, value))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def surely(condition: Any) -> bool:
    """Whether a condition on sizes holds in every step, by what the trace has checked."""
    return bool(statically_known_true(condition))


def equal_symbols(environment: ShapeEnv) -> dict[sympy.Symbol, sympy.Symbol]:
    """For each symbol that the trace has checked to equal another the first of them."""
    found: dict[sympy.Symbol, sympy.Symbol] = {}
    for checks in environment.deferred_runtime_asserts.values():
        for expr in (check.expr for check in checks):
            if isinstance(expr, sympy.Eq) and all(side.is_Symbol for side in expr.args):
                first, second = sorted((side.xreplace(found) for side in expr.args), key=_number)
                found = {symbol: of.xreplace({second: first}) for symbol, of in found.items()} | {
                    second: first
                }
    return found


def _number(symbol: sympy.Symbol) -> tuple[int, str]:
    return len(symbol.name), symbol.name
