"""Steps between layouts: one collective, slice or sum over one mesh axis each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.layout import WHOLE, Layout, marks_array, parts_of

SLICE, TIME = "slice", "time"
"""Steps without a collective: to slice, and to add terms of micro-batches or join their blocks."""
Alike = tuple[str, int, int, int]
"""What steps of equal cost share: name, axis, number of blocks before the step, and number of permutes."""


class LayoutSteps:
    """All steps between ``layouts``, whatever the size of the value.

    ``rows``, ``columns``: numbers of the layouts before and after each step. ``axis``: its mesh axis.
    ``times``: how often a step of training makes it, as a factor of its time. ``middles``: layouts that some
    step leads to. ``alike``: steps of equal cost.
    """

    def __init__(self, layouts: Sequence[Layout], axes: SearchAxes) -> None:
        self.layouts, self._axes = layouts, axes
        self.number = {layout: number for number, layout in enumerate(layouts)}
        self._marks = marks_array(layouts, len(axes.axes))
        found = list(self._all())
        self.rows, self.columns, self.axis, kinds, inner, self.dims = (
            np.concatenate([part[n] for part in found]) if found else np.zeros(0, int) for n in range(6)
        )
        turns = np.array([axes.turns(layout) for layout in layouts])
        self.times = np.array([n * axes.busy(n) for n in turns.tolist()])[self.rows] if found else np.zeros(0)
        self.middles = np.unique(self.columns).tolist()
        blocks = parts_of(tuple(layouts), axes.sizes)[self.rows]
        groups = defaultdict[Alike, list[int]](list)
        keys = zip(kinds.tolist(), self.axis.tolist(), blocks.tolist(), inner.tolist(), strict=True)
        for at, (kind, *rest) in enumerate(keys):
            groups[_NAMES[kind], *rest].append(at)
        self.alike = [(key, np.array(places)) for key, places in groups.items()]

    def _all(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield row, column, axis, number of the name, permutes and dim of steps, in groups."""
        for axis in range(self._marks.shape[1]):
            for new in np.unique(self._marks[:, axis]).tolist():
                if new >= WHOLE:
                    yield from self._to(axis, new)

    def _to(self, axis: int, new: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield the steps that give an axis the mark ``new``.

        Over a time axis, a step may only slice, join or sum terms, on a dim that no later axis splits. Over a
        space axis, it may not change a dim that a later time axis splits.
        """
        marks = self._marks
        mark, later = marks[:, axis], marks[:, axis + 1 :]
        times = [time for time in self._axes.time if time > axis]
        changed = [(later == mark[:, None]) & (later >= 0), (later == new) & (later >= 0)]
        inner = sum((part.any(axis=1).astype(int) for part in changed), np.zeros(len(marks), int))
        if axis in self._axes.time:
            can = (inner == 0) & ((new == WHOLE) | (mark == WHOLE))
            kinds = np.where(mark == WHOLE, _SLICE, _TIME)
        else:
            cut_in_time = marks[:, times]
            is_cut = (cut_in_time >= 0) & ((cut_in_time == mark[:, None]) | (cut_in_time == new))
            can = ~is_cut.any(axis=1)
            kinds = np.select(
                [mark < WHOLE, mark == WHOLE],
                [_ALL_REDUCE if new == WHOLE else _REDUCE_SCATTER, _SLICE],
                _ALL_GATHER if new == WHOLE else _ALL_TO_ALL,
            )
        rows = np.flatnonzero(can & (mark != new))
        to = [(*self.layouts[row][:axis], new, *self.layouts[row][axis + 1 :]) for row in rows.tolist()]
        columns = np.array([self.number.get(layout, -1) for layout in to], int)
        rows, columns = rows[columns >= 0], columns[columns >= 0]
        if len(rows):
            dims = np.maximum(mark[rows] if new == WHOLE else new, WHOLE)
            yield (
                rows,
                columns,
                np.full(len(rows), axis),
                kinds[rows],
                inner[rows],
                np.broadcast_to(dims, len(rows)),
            )


_NAMES = (SLICE, TIME, "all_reduce", "reduce_scatter", "all_gather", "all_to_all")
_SLICE, _TIME, _ALL_REDUCE, _REDUCE_SCATTER, _ALL_GATHER, _ALL_TO_ALL = range(len(_NAMES))
