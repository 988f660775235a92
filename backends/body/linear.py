"""Index expressions: sums of loop axes with factors that are constant during a call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from shardc.dialects.kern.size import AnySize

Axis = Hashable


@dataclass(frozen=True)
class Picked:
    """Computed index in place of an axis: operand ``operand`` of op ``op`` in a generic at ``dims``.

    ``steps``: numbers of the dims with which it moves by one, except where a comparison changes.
    """

    generic: int
    op: int
    operand: int
    dims: tuple[Linear, ...]
    steps: frozenset[int] = frozenset()

    @property
    def adjacent(self) -> Iterator[Axis]:
        """Yield the axes along which it moves by one, except where a comparison changes."""
        for dim in self.steps:
            yield from (axis for axis, factor in self.dims[dim].terms if factor == 1)


Shape = tuple[AnySize, ...]


@dataclass(frozen=True)
class Linear:
    """``constant + sum(factor * axis)``: an index, or an offset in elements, in a canonical form."""

    terms: tuple[tuple[Axis, AnySize], ...] = ()
    constant: AnySize = 0

    @staticmethod
    def axis(axis: Axis) -> Linear:
        return Linear(((axis, 1),))

    @staticmethod
    def of(terms: Mapping[Axis, AnySize], constant: AnySize) -> Linear:
        kept = [(axis, factor) for axis, factor in terms.items() if factor != 0]
        return Linear(tuple(sorted(kept, key=repr)), constant)

    def __add__(self, other: Linear) -> Linear:
        terms = dict(self.terms)
        for axis, factor in other.terms:
            terms[axis] = terms.get(axis, 0) + factor
        return Linear.of(terms, self.constant + other.constant)

    def __mul__(self, factor: AnySize) -> Linear:
        return Linear.of({axis: factor * f for axis, f in self.terms}, factor * self.constant)

    def factor(self, axis: Axis) -> AnySize:
        return dict(self.terms).get(axis, 0)

    @cached_property
    def axes(self) -> frozenset[Axis]:
        """Axes on which it depends, also through computed indices."""
        picked = [axis for axis, _ in self.terms if isinstance(axis, Picked)]
        below = (axis for p in picked for position in p.dims for axis in position.axes)
        return frozenset([axis for axis, _ in self.terms if not isinstance(axis, Picked)]).union(below)

    def plain(self) -> Axis | None:
        """Return the axis if the expression is just one loop axis; else None."""
        alone = len(self.terms) == 1 and self.terms[0][1] == 1 and self.constant == 0
        return self.terms[0][0] if alone and not isinstance(self.terms[0][0], Picked) else None

    def rename(self, name: Callable[[Axis], Axis]) -> Linear:
        return Linear.of({name(axis): factor for axis, factor in self.terms}, self.constant)


Index = tuple[Linear, ...]


def row_major(index: Index, shape: Shape) -> Linear:
    """Return the offset, in elements, of ``index`` in a contiguous tensor of ``shape``."""
    offset = Linear()
    for position, size in zip(index, shape, strict=True):
        offset = offset * size + position
    return offset
