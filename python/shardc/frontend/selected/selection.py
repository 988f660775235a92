"""Selections, which say which places of a dim hold an element, and tensors with such dims."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import sympy
import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv, statically_known_true

Size = int | torch.SymInt
Span = tuple[sympy.Expr, sympy.Expr]


@dataclass(frozen=True, eq=False)
class Selection:
    """The places, among ``size``, at which ``mask`` (bool [size]) is true, in order.

    ``span``: start and end, if the places are known to be consecutive. ``origin``: the selection of a dim
    that others were merged into; each of ``before`` repetitions holds every place of it ``after`` times in a
    row.
    """

    size: int
    mask: Node
    span: Span | None = None
    origin: Selection | None = None
    before: int = 1
    after: int = 1


@dataclass(frozen=True)
class Value:
    """Tensor of fixed shape that replaces one whose shape depends on values. ``dims``: its selections."""

    node: Node
    dims: tuple[Selection | None, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.node.meta["val"].shape)


@dataclass(frozen=True)
class Number:
    """A Python number that depends on values, as a 0-d tensor."""

    node: Node


def expr_of(size: Size) -> sympy.Expr:
    """Return a size as an expression in the trace's symbols."""
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def fixed(size: Size) -> int | None:
    """Return a size that is equal in every step; None otherwise."""
    expr = expr_of(size)
    return int(expr) if expr.is_Integer else None


def is_symbolic(value: object) -> bool:
    """Return whether a node's value is or has a size or number that depends on values."""
    if isinstance(value, torch.Tensor):
        return any(fixed(n) is None for n in value.shape)
    if isinstance(value, (tuple, list)):
        return any(map(is_symbolic, value))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def surely(condition: bool | torch.SymBool) -> bool:
    """Return whether a condition on sizes holds in every step, given the trace's checks."""
    return bool(statically_known_true(condition))


def equal_symbols(environment: ShapeEnv) -> dict[sympy.Symbol, sympy.Symbol]:
    """Map each symbol that the trace checked to equal others to the first of them."""
    found: dict[sympy.Symbol, sympy.Symbol] = {}
    for check in chain.from_iterable(environment.deferred_runtime_asserts.values()):
        sides = [side for side in check.expr.args if isinstance(side, sympy.Symbol)]
        if isinstance(check.expr, sympy.Eq) and len(sides) == 2:
            known = [found.get(side, side) for side in sides]
            first, second = sorted(known, key=lambda symbol: (len(symbol.name), symbol.name))
            found = {symbol: first if of == second else of for symbol, of in found.items()} | {second: first}
    return found
