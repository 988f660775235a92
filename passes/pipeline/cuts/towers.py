"""Towers of a model: parts of its forward beside each other, whose results a later op joins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

STAGE_PART = 0.75
"""Least work of a tower, relative to a stage of equal work. One with less has no stage of its own."""

Sources = Sequence[Sequence[int]]
"""For each op of a forward, the earlier ops whose results it reads."""


@dataclass(frozen=True)
class Run:
    """Equal layers of which a program has few: ops ``start`` to ``end`` stand for ``more`` work besides
    theirs.
    """

    start: int
    end: int
    more: float


@dataclass(frozen=True)
class Tower:
    """A tower that starts behind another one, and the op ``join`` that reads results of both."""

    start: int
    join: int


class Towers:
    """Towers of a forward.

    Two towers are what one operand of an op depends on and the operands before it do not, and the other way
    round, if both are enough work.

    Args:
        sources: What each op reads.
        work: Work of each op.
        stages: Number of equal stages; a tower has at least about the work of one.
        runs: Equal layers of which only a few are among the ops.
    """

    def __init__(
        self, sources: Sources, work: Sequence[float], stages: int, runs: Sequence[Run] = ()
    ) -> None:
        self._sources, self._work = sources, work
        self._runs = [(_bits(range(run.start, run.end)), run.more) for run in runs]
        self._more = {run.end - 1: run.more for run in runs}
        self._total = sum(work) + sum(run.more for run in runs)
        self._before = list[int]()
        for number, read in enumerate(sources):
            found = 1 << number
            for source in read:
                found |= self._before[source]
            self._before.append(found)
        self._joins = list(self._find_joins(STAGE_PART * self._total / stages))

    @property
    def found(self) -> list[Tower]:
        """The towers in order. They are in the order of the ops if they do not mix."""
        towers: dict[int, int] = {}
        for join, *pair in self._joins:
            towers.setdefault(max(map(_first, pair)), join)
        return [Tower(start, join) for start, join in sorted(towers.items())]

    @property
    def are_mixed(self) -> bool:
        """Whether ops of a tower come between those of another one."""
        return any(_last(one) > _first(other) and _last(other) > _first(one) for _, one, other in self._joins)

    def order(self) -> list[int]:
        """Return the ops in an order in which each tower is whole: depth first from the op with most work
        before it. Ops that no other one reads come right after those that they read.
        """
        last = max(range(len(self._work)), key=lambda n: (self._before[n].bit_count(), n))
        place: dict[int, tuple[int, int]] = {}
        todo = [(last, False)]
        while todo:
            number, is_read = todo.pop()
            if number in place:
                continue
            if is_read:
                place[number] = (len(place), -1)
            else:
                todo += [(number, True), *((n, False) for n in reversed(self._sources[number]))]
        for number, read in enumerate(self._sources):
            if number not in place:
                place[number] = max((place[n][0] for n in read), default=-1), number
        return sorted(place, key=place.__getitem__)

    def longest_part(self) -> float:
        """Return the part of all work on the longest path, if only towers are beside each other.

        An op follows the one before it, unless a tower starts.
        """
        starts, ends = {tower.start for tower in self.found}, list[float]()
        for number, own in enumerate(self._work):
            previous = [] if number in starts or not number else [number - 1]
            begins = max((ends[n] for n in (*previous, *self._sources[number])), default=0.0)
            ends.append(begins + own + self._more.get(number, 0.0))
        return max(ends) / self._total if self._total else 1.0

    def _find_joins(self, least: float) -> Iterator[tuple[int, int, int]]:
        """Yield ops that join towers, with what only the operands so far depend on, and only the next one."""
        for number, read in enumerate(self._sources):
            known = 0
            for source in read:
                ours, theirs = known & ~self._before[source], self._before[source] & ~known
                if ours and theirs and min(self._weight(ours), self._weight(theirs)) >= least > 0:
                    yield number, ours, theirs
                known |= self._before[source]

    def _weight(self, ops: int) -> float:
        """Return the work of a set of ops; of all equal layers only if it has a whole one."""
        more = sum(more for whole, more in self._runs if ops & whole == whole)
        return more + sum(self._work[number] for number in _numbers(ops))


def stage_edges(sources: Sources, stage_of: Sequence[int]) -> set[tuple[int, int]]:
    """Return the pairs of a stage and a later one that reads its results. ``stage_of``: each op's stage."""
    return {
        (stage_of[source], stage_of[number])
        for number, read in enumerate(sources)
        for source in read
        if stage_of[source] != stage_of[number]
    }


def _bits(numbers: range) -> int:
    return (1 << numbers.stop) - (1 << numbers.start)


def _first(ops: int) -> int:
    return (ops & -ops).bit_length() - 1


def _last(ops: int) -> int:
    return ops.bit_length() - 1


def _numbers(ops: int) -> Iterator[int]:
    while ops:
        yield _first(ops)
        ops &= ops - 1
