"""Costs of changing a value's layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardc.cost.links import LinkModel
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.layout import TERMS, WHOLE, Layout, layouts_of, parts

Matrix = np.ndarray
"""Seconds by the state of one node (row) and the state of another (column)."""
_PASSES = 3
"""Passes over memory to add an iteration's terms to a sum: two reads and one write."""
_SLICE_S = 1e-9
"""Cost of a step that sends nothing, so that fewer steps win a tie."""


@dataclass(frozen=True)
class _Kind:
    """Kind of value: shape, element size, and the allowed marks of decided axes."""

    shape: tuple[int, ...]
    element_bytes: int
    marks: tuple[tuple[int, ...], ...]


class Distances:
    """Seconds of the cheapest chain of collectives, each over one axis, between layouts of a value.

    Communication of a micro-batch is counted for every micro-batch. Terms of micro-batches are added on the
    device, at its memory's rate ``stream_bytes_s``. Each stage of a pipeline counts its share.
    """

    def __init__(self, axes: SearchAxes, links: LinkModel, stream_bytes_s: float) -> None:
        self._axes, self._links, self._stream_bytes_s = axes, links, stream_bytes_s
        self._tables: dict[_Kind, _Table] = {}
        self._known: dict[tuple[str, int, float], float] = {}

    def between(
        self, shape: tuple[int, ...], element_bytes: int, made: Sequence[Layout], needed: Sequence[Layout]
    ) -> Matrix:
        """Return the matrix of seconds, with a row for each of ``made`` and a column for each of
        ``needed``.
        """
        table = self._table(shape, element_bytes, (*made, *needed))
        rows, columns = ([table.number[layout] for layout in side] for side in (made, needed))
        return table.seconds[np.ix_(rows, columns)]

    def steps(
        self,
        shape: tuple[int, ...],
        element_bytes: int,
        layouts: Sequence[Layout],
        pair: tuple[Layout, Layout],
    ) -> list[tuple[int, float]]:
        """Return the cheapest chain between a pair of ``layouts``: the axis number and the seconds of each
        step.
        """
        return self._table(shape, element_bytes, layouts).chain(*pair)

    def _table(self, shape: tuple[int, ...], element_bytes: int, layouts: Sequence[Layout]) -> _Table:
        kind = _Kind(shape, element_bytes, tuple(self._marks(shape, layouts)))
        if kind not in self._tables:
            self._tables[kind] = _Table(kind, self._axes, self._seconds)
        return self._tables[kind]

    def _marks(self, shape: tuple[int, ...], layouts: Sequence[Layout]) -> Iterator[tuple[int, ...]]:
        """Yield the allowed marks of each decided axis: those that occur in ``layouts``.

        A space axis with several marks may have any mark.
        """
        for axis in self._axes.decided:
            found = sorted({layout[axis] for layout in layouts})
            is_free = len(found) > 1 and axis not in self._axes.time
            yield _every_mark(shape) if is_free else tuple(found)

    def _seconds(self, kind: str, axis: int, local_bytes: float) -> float:
        if axis in self._axes.time:
            return _PASSES * local_bytes / self._stream_bytes_s
        key = kind, axis, local_bytes
        if key not in self._known:
            over = self._axes.axes[axis]
            self._known[key] = self._links.seconds(kind, (over,), over.size, local_bytes)
        return self._known[key]


def _every_mark(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (WHOLE, *range(len(shape)), *TERMS.values())


class _Table:
    """Table of all layouts of values of one kind, including terms, and the seconds between them."""

    def __init__(self, kind: _Kind, axes: SearchAxes, step_s: Callable[[str, int, float], float]) -> None:
        self._kind, self._axes, self._sizes, self._step_s = kind, axes, axes.sizes, step_s
        decided = dict(zip(axes.decided, kind.marks, strict=True))
        marks = axes.joined(decided, [_every_mark(kind.shape)] * len(axes.axes))
        self._marks = [tuple(m for m in of if m >= WHOLE or n in axes.time) for n, of in enumerate(marks)]
        """Marks that a step may give each axis."""
        self.layouts = layouts_of(kind.shape, self._sizes, marks)
        self.number = {layout: number for number, layout in enumerate(self.layouts)}

    @cached_property
    def seconds(self) -> Matrix:
        """Return shortest paths (Floyd-Warshall) over steps of one axis each."""
        found = np.full((len(self.layouts),) * 2, np.inf)
        np.fill_diagonal(found, 0.0)
        for layout in self.layouts:
            for to, seconds in self._steps(layout):
                row, column = self.number[layout], self.number[to]
                found[row, column] = min(found[row, column], seconds)
        for middle in range(len(self.layouts)):
            np.minimum(found, found[:, middle, None] + found[None, middle, :], out=found)
        return found

    def chain(self, made: Layout, needed: Layout) -> list[tuple[int, float]]:
        """Return the axis and the seconds of each step of the cheapest chain between two layouts.

        Among equally cheap chains, one without needless changes of an axis is chosen.
        """
        found, layout, end = [], made, self.number[needed]
        while layout != needed:
            rest = [
                (seconds + self.seconds[self.number[to], end], _different(to, needed), to, seconds)
                for to, seconds in self._steps(layout)
            ]
            _, _, to, seconds = min(rest)
            pairs = enumerate(zip(layout, to, strict=True))
            found.append((next(axis for axis, (old, new) in pairs if old != new), seconds))
            layout = to
        return found

    def _steps(self, layout: Layout) -> Iterator[tuple[Layout, float]]:
        """Yield the layouts that one collective over one axis leads to, with its seconds."""
        for axis, mark in enumerate(layout):
            for new in self._marks[axis]:
                to = (*layout[:axis], new, *layout[axis + 1 :])
                if new != mark and to in self.number and self._can(layout, axis, new):
                    yield to, self._seconds(layout, axis, new)

    def _can(self, layout: Layout, axis: int, new: int) -> bool:
        """Return whether a step means the same in each iteration of the time axes.

        Over a time axis, a step may only slice, concatenate or sum terms, on a dim that no later axis splits.
        Over a space axis, it may not change a dim that a later time axis splits.
        """
        mark = layout[axis]
        if axis in self._axes.time:
            has_inner = any(dim >= 0 and dim in (mark, new) for dim in layout[axis + 1 :])
            return not has_inner and (new == WHOLE or (mark == WHOLE and new >= 0))
        cut_in_time = [layout[time] for time in self._axes.time if layout[time] >= 0 and axis < time]
        return mark not in cut_in_time and new not in cut_in_time

    def _seconds(self, layout: Layout, axis: int, new: int) -> float:
        turns = self._axes.turns(layout)
        return turns * self._axes.busy(turns) * self._once_s(layout, axis, new)

    def _once_s(self, layout: Layout, axis: int, new: int) -> float:
        mark, local_bytes = layout[axis], self._local_bytes(layout)
        if axis in self._axes.time:
            return _SLICE_S if mark == WHOLE else self._step_s("", axis, local_bytes)
        # If a later axis splits the same dim, a permute has to move blocks before or after the step.
        inner = sum(1 for dim in (mark, new) if dim >= 0 and dim in layout[axis + 1 :])
        moved = inner * self._step_s("permute", axis, local_bytes)
        if mark < WHOLE:
            return moved + self._step_s("all_reduce" if new == WHOLE else "reduce_scatter", axis, local_bytes)
        if mark == WHOLE:
            return moved + _SLICE_S
        return moved + self._step_s("all_gather" if new == WHOLE else "all_to_all", axis, local_bytes)

    def _local_bytes(self, layout: Layout) -> float:
        total = self._kind.element_bytes
        for size in self._kind.shape:
            total *= size
        return total / parts(layout, self._sizes)


def _different(one: Layout, other: Layout) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))
