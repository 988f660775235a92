"""Which places of a dim hold an element, and tensors with such dims."""

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
    """The places, among ``size``, where ``mask`` (bool [size]) is true, in their order.

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
    """A tensor of fixed shape in place of one whose shape depends on values; ``dims``: its selections."""

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
    """A size as an expression in the trace's symbols."""
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def fixed(size: Size) -> int | None:
    """A size that is the same in every step, or None."""
    expr = expr_of(size)
    return int(expr) if expr.is_Integer else None


def is_symbolic(value: object) -> bool:
    """Whether a node's value is, or has, a size or number that depends on values."""
    if isinstance(value, torch.Tensor):
        return any(fixed(n) is None for n in value.shape)
    if isinstance(value, (tuple, list)):
        return any(map(is_symbolic, value))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def surely(condition: bool | torch.SymBool) -> bool:
    """Whether a condition on sizes holds in every step, by what the trace has checked."""
    return bool(statically_known_true(condition))


def equal_symbols(environment: ShapeEnv) -> dict[sympy.Symbol, sympy.Symbol]:
    """For each symbol that the trace has checked to equal another the first of them."""
    found: dict[sympy.Symbol, sympy.Symbol] = {}
    for check in chain.from_iterable(environment.deferred_runtime_asserts.values()):
        sides = [side for side in check.expr.args if isinstance(side, sympy.Symbol)]
        if isinstance(check.expr, sympy.Eq) and len(sides) == 2:
            known = [found.get(side, side) for side in sides]
            first, second = sorted(known, key=lambda symbol: (len(symbol.name), symbol.name))
            found = {symbol: first if of == second else of for symbol, of in found.items()} | {second: first}
    return found
