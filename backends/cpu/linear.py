"""Index expressions: sums of loop axes with integer factors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from torch_mlir import ir

from shardc.diagnostics.kernels import KernelNotSupported

Axis = Hashable


@dataclass(frozen=True)
class Linear:
    """``constant + sum(factor * axis)``, an index or an offset in elements. Equal expressions compare equal."""

    terms: tuple[tuple[Axis, int], ...] = ()
    constant: int = 0

    @staticmethod
    def axis(axis: Axis) -> Linear:
        return Linear(((axis, 1),))

    @staticmethod
    def of(terms: Mapping[Axis, int], constant: int) -> Linear:
        kept = [(axis, factor) for axis, factor in terms.items() if factor]
        return Linear(tuple(sorted(kept, key=repr)), constant)

    def __add__(self, other: Linear) -> Linear:
        terms = dict(self.terms)
        for axis, factor in other.terms:
            terms[axis] = terms.get(axis, 0) + factor
        return Linear.of(terms, self.constant + other.constant)

    def __mul__(self, factor: int) -> Linear:
        return Linear.of({axis: factor * f for axis, f in self.terms}, factor * self.constant)

    def factor(self, axis: Axis) -> int:
        return dict(self.terms).get(axis, 0)

    def plain(self) -> Axis | None:
        """The axis, if the expression is one axis alone."""
        return self.terms[0][0] if len(self.terms) == 1 and self.terms[0][1] == 1 and not self.constant else None

    def rename(self, name: Callable[[Axis], Axis]) -> Linear:
        return Linear.of({name(axis): factor for axis, factor in self.terms}, self.constant)


Index = tuple[Linear, ...]


def row_major(index: Index, shape: tuple[int, ...]) -> Linear:
    """The offset in elements of ``index`` in a contiguous tensor of ``shape``."""
    offset = Linear()
    for position, size in zip(index, shape, strict=True):
        offset = offset * size + position
    return offset


def apply(expression: ir.AffineExpr, dims: Index) -> Linear:
    """``expression`` of an indexing map with ``dims`` in place of its dims."""
    if isinstance(expression, ir.AffineDimExpr):
        return dims[expression.position]
    if isinstance(expression, ir.AffineConstantExpr):
        return Linear(constant=expression.value)
    if isinstance(expression, ir.AffineAddExpr):
        return apply(expression.lhs, dims) + apply(expression.rhs, dims)
    if isinstance(expression, ir.AffineMulExpr) and isinstance(expression.rhs, ir.AffineConstantExpr):
        return apply(expression.lhs, dims) * expression.rhs.value
    raise KernelNotSupported(what=f"the index expression {expression}")
