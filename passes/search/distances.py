"""Costs of changing a value's layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shardc.cost.collective import BUCKET_BYTES
from shardc.cost.links import LinkModel
from shardc.cost.ops import KEPT_RATE, ROWS_TIME
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.layout import SUM, TERMS, WHOLE, Layout, layouts_of
from shardc.passes.search.layout_steps import SLICE, TIME, LayoutSteps

Matrix = np.ndarray
"""Seconds by the state of one node (row) and the state of another (column)."""
_SUM_BYTES = 4
"""Least bytes of an element of a sum over micro-batches: those of 16-bit floats are added in f32."""
_PACKED = frozenset(("all_reduce", "reduce_scatter", "all_gather"))
_SLICE_S = 1e-9
"""Cost of a step that sends nothing, so that fewer steps win a tie."""


@dataclass(frozen=True)
class _Kind:
    """Kind of value: shape, element size, allowed marks of decided axes, and the terms that it may have.

    ``major``: the dim along which its collectives are packed with others; None if they are sent alone.
    """

    shape: tuple[int, ...]
    element_bytes: int
    marks: tuple[tuple[int, ...], ...]
    terms: tuple[int, ...]
    major: int | None


class Distances:
    """Seconds of the cheapest chain of collectives, each over one axis, between layouts of a value.

    Communication of a micro-batch is counted for every micro-batch. Terms of micro-batches are added on the
    device, at the rate ``stream_bytes_s`` of its memory, or that of its last cache of ``cache_bytes``; those
    of unequal shares count nothing. Each stage of a pipeline counts its share. A collective
    that is packed with others (``dist-combine``) counts its part of a bucket of ``bucket_bytes``, and the
    copy into it.
    """

    def __init__(
        self,
        axes: SearchAxes,
        links: LinkModel,
        stream_bytes_s: float,
        bucket_bytes: float = BUCKET_BYTES,
        cache_bytes: float = 0.0,
    ) -> None:
        self._axes, self._links, self._stream_bytes_s = axes, links, stream_bytes_s
        self._bucket_bytes, self._cache_bytes = bucket_bytes, cache_bytes
        self._tables: dict[_Kind, _Table] = {}
        self._steps: dict[tuple[Layout, ...], LayoutSteps] = {}
        self._known: dict[tuple[str, int, float], float] = {}
        self._found: dict[object, tuple[object, Matrix]] = {}
        """Matrices by the layouts, as objects, which are kept."""

    def of_weights(self) -> Distances:
        """Return the seconds beside calls that only gradients of weights need."""
        axes = self._axes.of_weights
        if axes is self._axes:
            return self
        return Distances(axes, self._links, self._stream_bytes_s, self._bucket_bytes, self._cache_bytes)

    def between(
        self,
        shape: tuple[int, ...],
        element_bytes: int,
        made: tuple[Layout, ...],
        needed: tuple[Layout, ...],
        major: int | None = None,
    ) -> Matrix:
        """Return the matrix of seconds, with a row for each of ``made`` and a column for each of
        ``needed``. It must not be changed.

        ``major``: the dim along which the value's collectives are packed with others; None if they are not.
        """
        key = shape, element_bytes, id(made), id(needed), major
        if key not in self._found:
            table = self._table(shape, element_bytes, (*made, *needed), major)
            seconds = table.seconds[np.ix_(table.numbers(made), table.numbers(needed))]
            self._found[key] = (made, needed), seconds
        return self._found[key][1]

    def steps(
        self,
        shape: tuple[int, ...],
        element_bytes: int,
        layouts: Sequence[Layout],
        pair: tuple[Layout, Layout],
        major: int | None = None,
    ) -> list[tuple[int, float]]:
        """Return the cheapest chain between a pair of ``layouts``: the axis number and the seconds of each
        step.
        """
        return self._table(shape, element_bytes, layouts, major).chain(*pair)

    def _table(
        self, shape: tuple[int, ...], element_bytes: int, layouts: Sequence[Layout], major: int | None
    ) -> _Table:
        terms = TERMS.values() if any(mark < SUM for layout in layouts for mark in layout) else (SUM,)
        kind = _Kind(shape, element_bytes, tuple(self._marks(shape, layouts)), tuple(terms), major)
        if kind not in self._tables:
            steps = self._steps_of(kind)
            self._tables[kind] = _Table(steps, self._step_seconds(steps, kind))
        return self._tables[kind]

    def _marks(self, shape: tuple[int, ...], layouts: Sequence[Layout]) -> Iterator[tuple[int, ...]]:
        """Yield the allowed marks of each decided axis: those that occur in ``layouts``.

        A space axis with several marks may have any mark.
        """
        for axis in self._axes.decided:
            found = {layout[axis] for layout in layouts}
            is_free = len(found) > 1 and axis not in self._axes.time
            yield () if is_free else tuple(sorted(found))

    def _steps_of(self, kind: _Kind) -> LayoutSteps:
        """Return the steps between the layouts of a kind; kinds with equal layouts share them."""
        axes, every = self._axes, (WHOLE, *range(len(kind.shape)), *kind.terms)
        decided = {n: of or every for n, of in zip(axes.decided, kind.marks, strict=True)}
        marks = axes.joined(decided, [every] * len(axes.axes))
        layouts = layouts_of(kind.shape, axes.sizes, marks)
        if layouts not in self._steps:
            self._steps[layouts] = LayoutSteps(layouts, axes)
        return self._steps[layouts]

    def _step_seconds(self, steps: LayoutSteps, kind: _Kind) -> np.ndarray:
        """Return the seconds of each step of a value."""
        total = kind.element_bytes
        for size in kind.shape:
            total *= size
        once = np.empty(len(steps.rows))
        for (name, axis, parts, inner), places in steps.alike:
            local_bytes = total / parts
            first = inner * self._once("permute", axis, local_bytes) if inner else 0.0
            if name == TIME:
                once[places] = first + self._added(local_bytes, kind.element_bytes)
                continue
            once[places] = first + self._once(name, axis, local_bytes)
            if kind.major is not None and name in _PACKED:
                packed = places[np.isin(steps.dims[places], (WHOLE, kind.major))]
                once[packed] = first + self._packed(name, axis, local_bytes)
        return once * steps.times

    def _packed(self, name: str, axis: int, local_bytes: float) -> float:
        """Return the seconds of a step's part of a bucket; at most those of the step alone."""
        ways = self._axes.axes[axis].size
        part = local_bytes * (ways if name == "all_gather" else 1) / self._bucket_bytes
        alone = self._once(name, axis, local_bytes)
        if not 0.0 < part < 1.0:
            return alone
        copy_s = 2 * ROWS_TIME * local_bytes / self._stream_bytes_s
        return min(alone, part * self._once(name, axis, local_bytes / part) + copy_s)

    def _added(self, local_bytes: float, element_bytes: int) -> float:
        """Return the seconds to add an iteration's terms to a sum: terms and sum are read, it is written."""
        if self._axes.shared is not None:
            return _SLICE_S
        moved = local_bytes * (1 + 2 * max(element_bytes, _SUM_BYTES) / element_bytes)
        kept = min(moved, self._cache_bytes)
        return (moved - kept + kept / KEPT_RATE) / self._stream_bytes_s

    def _once(self, name: str, axis: int, local_bytes: float) -> float:
        """Return the seconds of one step over an axis."""
        if name == SLICE:
            return _SLICE_S
        key = name, axis, local_bytes
        if key not in self._known:
            over = self._axes.axes[axis]
            self._known[key] = self._links.seconds(name, (over,), over.size, local_bytes)
        return self._known[key]


class _Table:
    """Layouts of values of one kind, including terms, and the seconds between them.

    ``step_s``: seconds of each of ``steps``.
    """

    def __init__(self, steps: LayoutSteps, step_s: np.ndarray) -> None:
        self._steps, self._step_s = steps, step_s
        self.seconds = self._shortest()

    def numbers(self, layouts: Sequence[Layout]) -> list[int]:
        """Return the rows of layouts."""
        number = self._steps.number
        return [number[layout] for layout in layouts]

    def chain(self, made: Layout, needed: Layout) -> list[tuple[int, float]]:
        """Return the axis and the seconds of each step of the cheapest chain between two layouts.

        Among equally cheap chains, one without needless changes of an axis is chosen.
        """
        steps, found, layout = self._steps, list[tuple[int, float]](), made
        end = steps.number[needed]
        while layout != needed:
            rest = [
                (
                    self._step_s[at] + self.seconds[steps.columns[at], end],
                    _different(steps.layouts[steps.columns[at]], needed),
                    steps.layouts[steps.columns[at]],
                    at,
                )
                for at in np.flatnonzero(steps.rows == steps.number[layout])
            ]
            _, _, layout, at = min(rest)
            found.append((int(steps.axis[at]), float(self._step_s[at])))
        return found

    def _shortest(self) -> Matrix:
        """Return shortest paths (Floyd-Warshall) over steps of one axis each."""
        found = np.full((len(self._steps.layouts),) * 2, np.inf)
        np.fill_diagonal(found, 0.0)
        np.minimum.at(found, (self._steps.rows, self._steps.columns), self._step_s)
        for middle in self._steps.middles:
            np.minimum(found, found[:, middle, None] + found[None, middle, :], out=found)
        return found


def _different(one: Layout, other: Layout) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))
