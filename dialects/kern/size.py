"""Symbolic sizes, known only when a kernel is called: polynomials in a graph's symbols.

Coefficients are integers: ``s0 * 64`` is a :class:`Size`. A size without a symbol is an ``int``, so that
equal sizes compare equal. Sums, differences, products and exact quotients are computed symbolically; other
operations raise :class:`SizeNotKnown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import NoReturn, TypeVar

from torch_mlir import ir

SYMBOLS, SHAPES, SHAPE = "dist.symbols", "dist.shapes", "dist.shape"
"""Attributes of a function (hints of its symbols), an op and an argument (shapes in terms of symbols)."""

T = TypeVar("T")


class SizeNotKnown(Exception):
    """Raised when code needs the value of a symbolic size, which differs from call to call."""


@dataclass(frozen=True, order=True, slots=True)
class Symbol:
    """Symbol ``number`` of a graph or kernel. ``hint`` is its value when the graph was compiled.

    ``given``: it can be read anywhere in the graph, from one of its arguments. ``value`` is set for a
    constant that is passed as an argument only to share one kernel among calls that differ in it
    (:func:`argument`).
    """

    number: int
    hint: int
    given: bool = True
    value: int | None = None


Monomial = tuple[Symbol, ...]
"""A product of symbols, sorted."""


class Size:
    """A polynomial: a sum of products, at least one of which has a symbol."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = tuple(sorted(terms.items()))
        self._hash = hash(self.terms)

    @staticmethod
    def of(symbol: Symbol) -> Size:
        return Size({(symbol,): 1})

    @property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset(s for monomial, _ in self.terms for s in monomial)

    @property
    def symbol(self) -> Symbol | None:
        """The symbol, if the size is one symbol alone."""
        ((monomial, factor), *rest) = self.terms
        return monomial[0] if not rest and len(monomial) == 1 and factor == 1 else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Size | int) -> Size | int:
        return _sum((*self.terms, *_terms(other)))

    def __sub__(self, other: Size | int) -> Size | int:
        return self + -1 * other

    def __mul__(self, other: Size | int) -> Size | int:
        return _sum((tuple(sorted(a + b)), x * y) for a, x in self.terms for b, y in _terms(other))

    __radd__, __rmul__ = __add__, __mul__

    def __repr__(self) -> str:
        parts = ([str(f)] * (f != 1 or not m) + [f"s{s.number}" for s in m] for m, f in self.terms)
        return " + ".join(map("*".join, parts))

    def _refuse(self, *_: object) -> NoReturn:
        raise SizeNotKnown(f"needs the number behind the symbolic size {self}")

    __bool__ = __int__ = __index__ = __float__ = __abs__ = __neg__ = __mod__ = __rmod__ = _refuse
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __divmod__ = __rdivmod__ = __rsub__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse  # type: ignore[assignment]


AnySize = int | Size

_FIRST_VALUE = 1 << 32
"""First symbol number that :func:`argument` uses."""


def argument(value: int) -> Size:
    """Return the constant ``value`` (0 or more) as a symbol that kernels take as an argument."""
    return Size.of(Symbol(_FIRST_VALUE + value, 0, value=value))


def _terms(size: AnySize) -> tuple[tuple[Monomial, int], ...]:
    return size.terms if isinstance(size, Size) else (((), size),)


def _sum(terms: Iterable[tuple[Monomial, int]]) -> AnySize:
    total: dict[Monomial, int] = {}
    for monomial, factor in terms:
        total[monomial] = total.get(monomial, 0) + factor
    total = {monomial: factor for monomial, factor in total.items() if factor}
    return Size(total) if any(total) else total.get((), 0)


def symbols_of(sizes: Iterable[AnySize]) -> frozenset[Symbol]:
    """Return every symbol in ``sizes``."""
    return frozenset(s for size in sizes if isinstance(size, Size) for s in size.symbols)


def hint(size: AnySize) -> int:
    """Return the value of ``size`` when the graph was compiled. Only for estimates, never for results."""
    return sum(factor * prod(s.hint for s in monomial) for monomial, factor in _terms(size))


def quotient(a: AnySize, b: AnySize) -> AnySize | None:
    """Return ``a / b`` if ``b`` is one product that divides ``a`` for all values of the symbols, else
    None.
    """
    if a == b:
        return 1
    ((divisor, by), *rest) = _terms(b)
    if rest or not by:
        return None
    found: dict[Monomial, int] = {}
    for monomial, factor in _terms(a):
        left = list(monomial)
        for symbol in divisor:
            if symbol not in left:
                return None
            left.remove(symbol)
        if factor % by:
            return None
        found[tuple(left)] = factor // by
    return _sum(found.items())


def evaluate(
    size: AnySize,
    value: Callable[[Symbol], T],
    constant: Callable[[int], T],
    times: Callable[[T, T], T],
    plus: Callable[[T, T], T],
) -> T:
    """Evaluate ``size`` in another algebra: ``value`` converts symbols, ``constant`` integers.

    ``times`` and ``plus`` combine the converted values.
    """
    terms = (
        [constant(factor)] * (factor != 1 or not monomial) + [value(s) for s in monomial]
        for monomial, factor in _terms(size)
    )
    return reduce(plus, (reduce(times, parts) for parts in terms))


def shape_map(shape: Iterable[AnySize], symbols: Sequence[Symbol], context: ir.Context) -> ir.Attribute:
    """Return ``affine_map<()[s0, s1] -> (s0 * s1, 64)>`` for a shape in terms of ``symbols``."""
    with context:
        exprs = [
            evaluate(
                size,
                lambda s: ir.AffineExpr.get_symbol(symbols.index(s)),
                ir.AffineExpr.get_constant,
                ir.AffineExpr.get_mul,
                ir.AffineExpr.get_add,
            )
            for size in shape
        ]
        return ir.AffineMapAttr.get(ir.AffineMap.get(0, len(symbols), exprs))


def read_shape(attribute: ir.Attribute, symbols: Sequence[Symbol]) -> tuple[AnySize, ...]:
    """Return the shape that a :func:`shape_map` holds. Raises ValueError if an expression is no
    polynomial.
    """
    return tuple(_read(e, symbols) for e in ir.AffineMapAttr(attribute).value.results)


def _read(expression: ir.AffineExpr, symbols: Sequence[Symbol]) -> AnySize:
    if isinstance(expression, ir.AffineConstantExpr):
        return expression.value
    if isinstance(expression, ir.AffineSymbolExpr):
        return Size.of(symbols[expression.position])
    if isinstance(expression, ir.AffineAddExpr):
        return _read(expression.lhs, symbols) + _read(expression.rhs, symbols)
    if isinstance(expression, ir.AffineMulExpr):
        return _read(expression.lhs, symbols) * _read(expression.rhs, symbols)
    raise ValueError(f"{expression} is not a polynomial in sizes")
