"""Result of a search on a few of a model's equal layers, for programs with any number of these layers.

Each program is a sequence of repetitions with calls before, between and after them. Programs of the same
model differ only in the number of periods.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from shardc.dialects.dist.mesh import Mesh
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.search.chosen import Chosen, Kept
from shardc.passes.search.fold import NotFolded, call_key, part_of
from shardc.passes.search.layout import Layout
from shardc.passes.search.repetitions import Repetition, repetitions
from shardc.passes.search.saved import Row, SavedCuts

RECOMPUTE = "recompute"


@dataclass(frozen=True)
class _Item:
    """A call or an argument.

    ``part``: its phase or role; a recomputed call is part of backward. ``key``: equal for corresponding items
    of equal layers. ``kind``: what does not depend on sizes, so that it is the same for another batch.
    """

    part: str
    key: Hashable
    kind: Hashable
    is_recomputed: bool = False


@dataclass(frozen=True)
class LayeredCuts:
    """What a search chose for each call and each argument of a program with few layers."""

    calls: tuple[tuple[_Item, Row, Kept], ...]
    arguments: tuple[tuple[_Item, Layout], ...]

    @staticmethod
    def of(program: Program, chosen: Chosen) -> LayeredCuts:
        """Return the result of a search."""
        rows = [way.choices for way in chosen.ways]
        return LayeredCuts(
            tuple(zip(map(_call, program.nodes), rows, chosen.kept, strict=True)),
            tuple(zip(_arguments(program), chosen.arguments, strict=True)),
        )

    def read(self, program: Program, mesh: Mesh, pipeline: str) -> Chosen:
        """Return what was chosen for each call and argument of a program with more or fewer layers.

        The program may lack the recomputation of the one that was searched, and have another batch. Raises
        NotFolded if they differ in more than that and the number of layers, and CutsDoNotFit.
        """
        is_again = any(phase_of(node.op) == RECOMPUTE for node in program.nodes)
        calls = [call for call in self.calls if is_again or not call[0].is_recomputed]
        places = _places([item for item, _, _ in calls], list(map(_call, program.nodes)))
        layouts = _places([item for item, _ in self.arguments], _arguments(program))
        rows, kept = tuple(calls[n][1] for n in places), tuple(calls[n][2] for n in places)
        arguments = tuple(self.arguments[n][1] for n in layouts)
        return SavedCuts("", rows, arguments, kept).read(program, mesh, pipeline)


def _call(node: Node) -> _Item:
    ranks, phase = tuple(len(type_.shape) for type_ in node.spec.tensors), phase_of(node.op)
    return _Item(part_of(node), call_key(node), (node.spec.target, ranks, phase), phase == RECOMPUTE)


def _arguments(program: Program) -> list[_Item]:
    found = []
    for position, value in enumerate(program.arguments):
        role, name = program.argument_key(position)
        kind = re.sub(r"\d+", "*", name)
        found.append(_Item(role, (kind, program.types[value]), kind))
    return found


def _places(few: Sequence[_Item], others: Sequence[_Item]) -> list[int]:
    """Return, for each item of another program, the place of its like in ``few``. Raises NotFolded."""
    mine, theirs = (
        [(part, list(group)) for part, group in itertools.groupby(items, key=lambda item: item.part)]
        for items in (few, others)
    )
    if [part for part, _ in mine] != [part for part, _ in theirs]:
        raise NotFolded("phases or roles")
    found, start = list[int](), 0
    for (part, held), (_, asked) in zip(mine, theirs, strict=True):
        places = [start + place for place in _repeated(held, asked)]
        if [few[place].kind for place in places] != [item.kind for item in asked]:
            raise NotFolded(part)
        found += places
        start += len(held)
    return found


def _repeated(few: Sequence[_Item], others: Sequence[_Item]) -> list[int]:
    """Return the places in ``few`` of a sequence with other numbers of periods.

    Each repetition but the last has as many periods as ``others`` have there.
    """
    count = len(others)
    if count == len(few):
        return list(range(count))
    found, done = list[int](), 0
    repeated = sorted(repetitions([item.key for item in few], is_few=True), key=lambda r: r.first)
    for place, repetition in enumerate(repeated, 1):
        found += range(done, repetition.first)
        done = repetition.first + repetition.length
        left = count - len(found) - (len(few) - done)
        is_last = place == len(repeated)
        periods = left // repetition.period if is_last else _periods(repetition, few, others[len(found) :])
        for number in _likes(periods, repetition.length // repetition.period):
            start = repetition.first + number * repetition.period
            found += range(start, start + repetition.period)
    return [*found, *range(done, len(few))]


def _likes(periods: int, few: int) -> list[int]:
    """Return which of ``few`` periods each of another number of periods is like: the first, the last, or the
    second, so that each further period adds the same.
    """
    return [0, *[1] * (periods - 2), few - 1][:periods] if periods != few else list(range(few))


def _periods(repetition: Repetition, few: Sequence[_Item], others: Sequence[_Item]) -> int:
    """Return the number of periods at the start of ``others``."""
    period = [few[place].kind for place in repetition.places[: repetition.period]]
    starts = range(0, len(others), repetition.period)
    kinds = ([item.kind for item in others[start : start + repetition.period]] for start in starts)
    return sum(1 for _ in itertools.takewhile(period.__eq__, kinds))
