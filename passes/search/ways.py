"""The ways to cut one call: each mesh axis cuts a factor of its rule, or lets sums pass, or does nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from shardc.dialects.dist.sharding import Axes
from shardc.dialects.rules.rule import Dims, Rule, representable
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.layout import SUM, TERMS, WHOLE, Layout, divides, in_order

Choice = str | int | None
"""What an axis does: the factor that it cuts, the number of the rule's linear set that passes, or nothing."""

Decided = tuple[tuple[int, Choice], ...]
"""What some axes do, by their numbers."""


@dataclass(frozen=True)
class Way:
    """One way to cut a call: what each axis does, what operands it needs, what results it makes, and the
    part of the call's work that a device does.
    """

    choices: tuple[Choice, ...]
    operands: tuple[Layout, ...]
    results: tuple[Layout, ...]
    share: float

    def passing(self) -> tuple[int | None, tuple[int, ...]]:
        """The linear set whose sums pass, and the numbers of the axes over which they do."""
        over = {number: choice for number, choice in enumerate(self.choices) if isinstance(choice, int)}
        return next(iter(over.values()), None), tuple(over)

    def cuts(self, axes: Axes) -> dict[str, Axes]:
        """The rule's assignment, of the mesh's ``axes``."""
        found: dict[str, Axes] = {}
        for axis, choice in zip(axes, self.choices, strict=True):
            if isinstance(choice, str):
                found[choice] = (*found.get(choice, ()), axis)
        return found


@dataclass(frozen=True)
class Shapes:
    """The shapes of a call's operands and results that are tensors."""

    operands: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]


class WaysOf:
    """The ways to cut calls on a mesh, found once for calls of one rule."""

    def __init__(self, axes: SearchAxes) -> None:
        self._searched, self._axes, self._sizes = axes, axes.axes, axes.sizes
        self._known: dict[tuple[int, Shapes, Decided], tuple[Way, ...]] = {}
        self._rules: list[Rule] = []

    def of(self, rule: Rule, shapes: Shapes, decided: Decided = ()) -> tuple[Way, ...]:
        """The ways, the one that cuts nothing first. Of those with equal layouts the one of least work.

        ``decided``: axes of which it is known what they do.
        """
        key = id(rule), shapes, decided
        if key not in self._known:
            self._rules.append(rule)  # keeps its id
            self._known[key] = tuple(self._found(rule, shapes, decided))
        return self._known[key]

    def way(self, rule: Rule, shapes: Shapes, choices: tuple[Choice, ...]) -> Way | None:
        """The way in which axes do what ``choices`` say; None if there is none."""
        passing = {choice for choice in choices if isinstance(choice, int)}
        factors = {choice for choice in choices if isinstance(choice, str)}
        is_known = all(0 <= number < len(rule.linear) for number in passing) and factors <= {*rule.factors}
        if len(choices) != len(self._axes) or not is_known or len(passing) > 1:
            return None
        return self._way(rule, shapes, choices) if self._fits(rule, choices) else None

    def _found(self, rule: Rule, shapes: Shapes, decided: Decided) -> list[Way]:
        best: dict[tuple[tuple[Layout, ...], tuple[Layout, ...]], Way] = {}
        for way in self._every(rule, shapes, decided):
            key = way.operands, way.results
            if key not in best or way.share < best[key].share:
                best[key] = way
        return list(best.values())

    def _every(self, rule: Rule, shapes: Shapes, decided: Decided) -> Iterator[Way]:
        factors = [f for f in rule.factors if f not in rule.traded and rule.sizes[f] > 1]
        options: list[Choice] = [None, *factors, *range(len(rule.linear))]
        for free in itertools.product(options, repeat=len(self._axes) - len(decided)):
            choices = self._searched.joined(dict(decided), free)
            if len({c for c in choices if isinstance(c, int)}) > 1 or not self._fits(rule, choices):
                continue
            way = self._way(rule, shapes, choices)
            if way is not None:
                yield way

    def _fits(self, rule: Rule, choices: tuple[Choice, ...]) -> bool:
        """Whether axes divide the factors that they cut, and blocks of dims can say the cut."""
        places: dict[str, list[int]] = {}
        for number, choice in enumerate(choices):
            if isinstance(choice, str):
                places.setdefault(choice, []).append(number)
        if any(rule.sizes[f] % prod(self._sizes[n] for n in at) for f, at in places.items()):
            return False
        tensors = rule.operands + rule.results
        assignment = {f: tuple(self._axes[n] for n in at) for f, at in places.items()}
        return all(representable(d, assignment, rule.sizes) and in_order(d, places) for d in tensors)

    def _way(self, rule: Rule, shapes: Shapes, choices: tuple[Choice, ...]) -> Way | None:
        count = range(len(rule.operands))
        operands = [tuple(needed_mark(rule, choice, number) for choice in choices) for number in count]
        made: list[Layout] = []
        for dims in rule.results:
            marks = [made_mark(rule, choice, dims) for choice in choices]
            if None in marks:
                return None
            made.append(tuple(mark for mark in marks if mark is not None))
        pairs = (*zip(operands, shapes.operands, strict=True), *zip(made, shapes.results, strict=True))
        if not all(divides(layout, shape, self._sizes) for layout, shape in pairs):
            return None
        cut = prod(s for c, s in zip(choices, self._sizes, strict=True) if isinstance(c, str))
        return Way(choices, tuple(operands), tuple(made), 1 / cut)


def needed_mark(rule: Rule, choice: Choice, number: int) -> int:
    """What an axis that does ``choice`` is in the layout that operand ``number`` needs."""
    if isinstance(choice, int):
        return SUM if number in rule.linear[choice] else WHOLE
    return WHOLE if choice is None else _dim_of(rule.operands[number], choice)


def made_mark(rule: Rule, choice: Choice, dims: Dims) -> int | None:
    """What it is in a result's layout; None where the result lacks a factor that cannot be reduced."""
    if isinstance(choice, int):
        return SUM
    mark = WHOLE if choice is None else _dim_of(dims, choice)
    if choice is None or mark != WHOLE:
        return mark
    return TERMS[rule.reduce[choice]] if choice in rule.reduce else None


@lru_cache(maxsize=65536)
def _dim_of(dims: Dims, factor: str) -> int:
    """The dim that has a factor; ``WHOLE`` if none has."""
    return next((dim for dim, factors in enumerate(dims) if factor in factors), WHOLE)
