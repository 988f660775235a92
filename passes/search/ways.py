"""Ways to shard a call: each mesh axis shards a factor of its rule, passes partial sums, or does nothing."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TypeVar

from shardc.dialects.dist.sharding import Axes
from shardc.dialects.rules.rule import Dims, Rule, representable
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.layout import SUM, TERMS, WHOLE, Layout, divides, in_order

_Mark = TypeVar("_Mark")
Choice = str | int | None
"""Choice of an axis: a factor to shard, the number of a linear set that passes partial sums, or None."""

Decided = tuple[tuple[int, Choice], ...]
"""Choices that are fixed: pairs of an axis's number and its choice."""


@dataclass(frozen=True)
class Way:
    """Way to shard a call: the choice of each axis, the layouts of operands and results, and the fraction of
    the call's work on one device.
    """

    choices: tuple[Choice, ...]
    operands: tuple[Layout, ...]
    results: tuple[Layout, ...]
    share: float

    def passing(self) -> tuple[int | None, tuple[int, ...]]:
        """Return the linear set whose partial sums pass, and the numbers of the axes that pass them."""
        over = {number: choice for number, choice in enumerate(self.choices) if isinstance(choice, int)}
        return next(iter(over.values()), None), tuple(over)

    def cuts(self, axes: Axes) -> dict[str, Axes]:
        """Return the mesh axes of each sharded factor, with ``axes`` as the mesh's axes."""
        found: dict[str, Axes] = {}
        for axis, choice in zip(axes, self.choices, strict=True):
            if isinstance(choice, str):
                found[choice] = (*found.get(choice, ()), axis)
        return found


def needed_of(ways: Sequence[Way], place: int) -> tuple[Layout, ...]:
    """Return the layout of an operand in each way."""
    return tuple(way.operands[place] for way in ways)


def made_of(ways: Sequence[Way], place: int) -> tuple[Layout, ...]:
    """Return the layout of a result in each way."""
    return tuple(way.results[place] for way in ways)


@dataclass(frozen=True)
class Shapes:
    """Shapes of a call's tensor operands and tensor results."""

    operands: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]


_Key = tuple[int, Shapes, Decided]
_Splits = Collection[tuple[int, tuple[int, ...]]]
"""Sizes of factors and dims, with the numbers of the axes that split each."""


class WaysOf:
    """Ways to shard calls on a mesh, cached for calls with the same rule.

    ``small``: those on a mesh with smaller axes, of which those here are multiples. It has more ways.
    """

    def __init__(self, axes: SearchAxes, small: WaysOf | None = None) -> None:
        self._axes, self._sizes = axes.axes, axes.sizes
        is_multiple = small is not None and not any(
            size % other for size, other in zip(self._sizes, small._sizes, strict=True)
        )
        self._small = small if is_multiple else None
        self._all: dict[_Key, tuple[Dims, list[tuple[Way, _Splits]]]] = {}
        self._known: dict[_Key, tuple[Way, ...]] = {}
        self._same: dict[tuple[Way, ...], tuple[Way, ...]] = {}
        self._rules: list[Rule] = []

    def of(self, rule: Rule, shapes: Shapes, decided: Decided = ()) -> tuple[Way, ...]:
        """Return the ways, the unsharded one first. Of ways with equal layouts, only the cheapest remains.

        ``decided`` fixes the choices of some axes. Equal ways are one object.
        """
        key = id(rule), shapes, decided
        if key not in self._known:
            self._rules.append(rule)  # keeps its id
            found = tuple(self._found(rule, shapes, decided))
            self._known[key] = self._same.setdefault(found, found)
        return self._known[key]

    def way(self, rule: Rule, shapes: Shapes, choices: tuple[Choice, ...]) -> Way | None:
        """Return the way with these ``choices``, one per axis; None if the rule does not allow it."""
        numbers = {choice for choice in choices if isinstance(choice, int)}
        factors = {choice for choice in choices if isinstance(choice, str)}
        is_known = all(0 <= number < len(rule.linear) for number in numbers) and factors <= {*rule.factors}
        if not is_known or len(choices) != len(self._axes):
            return None
        found = self._way(_Marks(rule), shapes, choices)
        return found if found and self._is_representable(rule, _joined(rule), choices) else None

    def _found(self, rule: Rule, shapes: Shapes, decided: Decided) -> list[Way]:
        best: dict[tuple[tuple[Layout, ...], tuple[Layout, ...]], Way] = {}
        is_known = self._small is not None
        every = self._of_small(rule, shapes, decided) if is_known else self._every(rule, shapes, decided)
        for way in every:
            key = way.operands, way.results
            if key not in best or way.share < best[key].share:
                best[key] = way
        return list(best.values())

    def _of_small(self, rule: Rule, shapes: Shapes, decided: Decided) -> Iterator[Way]:
        """Yield the ways on the small mesh that larger axes leave."""
        assert self._small is not None
        sizes, (joined, ways) = self._sizes, self._small.with_splits(rule, shapes, decided)
        for way, splits in ways:
            if any(size % prod(sizes[n] for n in axes) for size, axes in splits):
                continue
            if not joined or self._is_representable(rule, joined, way.choices):
                yield Way(way.choices, way.operands, way.results, self._share(way.choices))

    def read(self, calls: Iterable[tuple[Rule, Shapes, Decided]]) -> None:
        """Keep what meshes with larger axes ask about these calls."""
        for call in calls:
            self.with_splits(*call)

    def with_splits(
        self, rule: Rule, shapes: Shapes, decided: Decided
    ) -> tuple[Dims, list[tuple[Way, _Splits]]]:
        """Return the dims of a rule that join factors, and all ways with what they split.

        Of ways with equal layouts all are there, also those that these dims cannot express.
        """
        key = id(rule), shapes, decided
        if key not in self._all:
            self._rules.append(rule)
            ways = self._possible(_Marks(rule), shapes, decided)
            self._all[key] = _joined(rule), [(way, _splits(rule, shapes, way)) for way in ways]
        return self._all[key]

    def _every(self, rule: Rule, shapes: Shapes, decided: Decided) -> Iterator[Way]:
        joined = _joined(rule)
        for way in self._possible(_Marks(rule), shapes, decided):
            if self._is_representable(rule, joined, way.choices):
                yield way

    def _possible(self, marks: _Marks, shapes: Shapes, decided: Decided) -> Iterator[Way]:
        """Yield the ways whose axes divide what they split."""
        rule = marks.rule
        factors = [f for f in rule.factors if f not in rule.traded and rule.sizes[f] > 1]
        options: list[Choice] = [None, *factors, *range(len(rule.linear))]
        options = [choice for choice in options if marks.of(choice) is not None]
        free = [[c for c in options if self._divides(rule, c, size)] for size in self._sizes]
        fixed = {axis: [choice] for axis, choice in decided}
        for choices in itertools.product(*(fixed.get(axis, of) for axis, of in enumerate(free))):
            way = self._way(marks, shapes, choices)
            if way is not None:
                yield way

    def _is_representable(self, rule: Rule, joined: Dims, choices: tuple[Choice, ...]) -> bool:
        """Return whether blocks of dims that join factors can express the sharding."""
        if not joined:
            return True
        places = _places(choices)
        assignment = {f: tuple(self._axes[n] for n in at) for f, at in places.items() if isinstance(f, str)}
        return not assignment or representable(joined, assignment, rule.sizes)

    def _divides(self, rule: Rule, choice: Choice, size: int) -> bool:
        return not isinstance(choice, str) or rule.sizes[choice] % size == 0

    def _fits(self, marks: _Marks, choices: tuple[Choice, ...]) -> bool:
        """Return whether axes divide their factors, and are in the mesh's order in dims that join factors."""
        rule, places = marks.rule, dict[str, list[int]]()
        for number, choice in enumerate(choices):
            if isinstance(choice, str):
                places.setdefault(choice, []).append(number)
        if any(rule.sizes[f] % prod(self._sizes[n] for n in at) for f, at in places.items()):
            return False
        return not marks.joined or in_order(marks.joined, places)

    def _way(self, marks: _Marks, shapes: Shapes, choices: tuple[Choice, ...]) -> Way | None:
        found = [marks.of(choice) for choice in choices]
        passing = {choice for choice in choices if isinstance(choice, int)}
        if None in found or len(passing) > 1 or not self._fits(marks, choices):
            return None
        each = [of for of in found if of is not None]
        count = len(marks.rule.operands)
        layouts: list[Layout] = list(zip(*each, strict=True))
        pairs = zip(layouts, (*shapes.operands, *shapes.results), strict=True)
        if not all(divides(layout, shape, self._sizes) for layout, shape in pairs):
            return None
        return Way(choices, tuple(layouts[:count]), tuple(layouts[count:]), self._share(choices))

    def _share(self, choices: tuple[Choice, ...]) -> float:
        return 1 / prod(s for c, s in zip(choices, self._sizes, strict=True) if isinstance(c, str))


def _splits(rule: Rule, shapes: Shapes, way: Way) -> _Splits:
    """Return the factors and dims that a way splits."""
    found = [
        (rule.sizes[factor], of) for factor, of in _places(way.choices).items() if isinstance(factor, str)
    ]
    pairs = zip((*way.operands, *way.results), (*shapes.operands, *shapes.results), strict=True)
    for layout, shape in pairs:
        found += [(shape[dim], of) for dim, of in _places(layout).items() if dim >= 0]
    return frozenset(found)


def _places(marks: Sequence[_Mark]) -> dict[_Mark, tuple[int, ...]]:
    """Return the numbers of the axes with each mark."""
    found: dict[_Mark, tuple[int, ...]] = {}
    for number, mark in enumerate(marks):
        found[mark] = (*found.get(mark, ()), number)
    return found


def _joined(rule: Rule) -> Dims:
    """Return the dims of a rule's operands and results that join several factors."""
    tensors = (*rule.operands, *rule.results)
    return tuple({dim: None for dims in tensors for dim in dims if len(dim) > 1})


class _Marks:
    """Marks of an axis in the layouts of a rule's operands and results, for each choice of the axis.

    ``joined``: dims with several factors.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule, self.joined = rule, _joined(rule)
        self._known: dict[Choice, tuple[int, ...] | None] = {}

    def of(self, choice: Choice) -> tuple[int, ...] | None:
        """Return the marks of operands and results; None if a result lacks an irreducible factor."""
        if choice not in self._known:
            self._known[choice] = self._of(choice)
        return self._known[choice]

    def _of(self, choice: Choice) -> tuple[int, ...] | None:
        needed = [needed_mark(self.rule, choice, number) for number in range(len(self.rule.operands))]
        made = [made_mark(self.rule, choice, dims) for dims in self.rule.results]
        found = [mark for mark in made if mark is not None]
        return (*needed, *found) if len(found) == len(made) else None


def needed_mark(rule: Rule, choice: Choice, number: int) -> int:
    """Return the mark of an axis with ``choice`` in the required layout of operand ``number``."""
    if isinstance(choice, int):
        return SUM if number in rule.linear[choice] else WHOLE
    return WHOLE if choice is None else _dim_of(rule.operands[number], choice)


def made_mark(rule: Rule, choice: Choice, dims: Dims) -> int | None:
    """Return the axis's mark in a result's layout; None if the result lacks an irreducible factor."""
    if isinstance(choice, int):
        return SUM
    mark = WHOLE if choice is None else _dim_of(dims, choice)
    if choice is None or mark != WHOLE:
        return mark
    return TERMS[rule.reduce[choice]] if choice in rule.reduce else None


@lru_cache(maxsize=65536)
def _dim_of(dims: Dims, factor: str) -> int:
    """Return the dim that contains a factor; ``WHOLE`` if no dim does."""
    return next((dim for dim, factors in enumerate(dims) if factor in factors), WHOLE)
