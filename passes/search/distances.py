"""What it costs to take a value from one layout to another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardc.cost.links import LinkModel
from shardc.dialects.dist.sharding import Axes
from shardc.passes.search.layout import TERMS, WHOLE, Layout, divides, parts

Matrix = np.ndarray
"""Seconds, by the state of one node and that of another."""
_SLICE_S = 1e-9
"""A step that sends nothing: fewer of them break ties."""


@dataclass(frozen=True)
class _Kind:
    shape: tuple[int, ...]
    element_bytes: int


class Distances:
    """Seconds of the cheapest chain of collectives, each over one axis, between layouts of a value."""

    def __init__(self, axes: Axes, links: LinkModel) -> None:
        self._axes, self._links = axes, links
        self._sizes = tuple(axis.size for axis in axes)
        self._tables: dict[_Kind, _Table] = {}

    def between(
        self, shape: tuple[int, ...], element_bytes: int, made: Sequence[Layout], needed: Sequence[Layout]
    ) -> Matrix:
        """The matrix of seconds, a row for each of ``made`` and a column for each of ``needed``."""
        kind = _Kind(shape, element_bytes)
        if kind not in self._tables:
            self._tables[kind] = _Table(kind, self._axes, self._sizes, self._seconds)
        table = self._tables[kind]
        rows, columns = ([table.number[layout] for layout in side] for side in (made, needed))
        return table.seconds[np.ix_(rows, columns)]

    def _seconds(self, kind: str, axis: int, local_bytes: float) -> float:
        return self._links.seconds(kind, (self._axes[axis],), self._sizes[axis], local_bytes)


class _Table:
    """All layouts of values of one shape, terms among them, and the seconds between them."""

    def __init__(
        self, kind: _Kind, axes: Axes, sizes: tuple[int, ...], step_s: Callable[[str, int, float], float]
    ) -> None:
        self._kind, self._sizes, self._step_s = kind, sizes, step_s
        marks = (WHOLE, *TERMS.values(), *range(len(kind.shape)))
        every = itertools.product(marks, repeat=len(axes))
        self.layouts = [layout for layout in every if divides(layout, kind.shape, sizes)]
        self.number = {layout: number for number, layout in enumerate(self.layouts)}

    @cached_property
    def seconds(self) -> Matrix:
        """Floyd and Warshall's shortest paths over steps of one axis each."""
        found = np.full((len(self.layouts),) * 2, np.inf)
        np.fill_diagonal(found, 0.0)
        for layout in self.layouts:
            for to, seconds in self._steps(layout):
                row, column = self.number[layout], self.number[to]
                found[row, column] = min(found[row, column], seconds)
        for middle in range(len(self.layouts)):
            np.minimum(found, found[:, middle, None] + found[None, middle, :], out=found)
        return found

    def _steps(self, layout: Layout) -> Iterator[tuple[Layout, float]]:
        """The layouts that one collective over one axis leads to, with its seconds."""
        for axis, mark in enumerate(layout):
            for new in (WHOLE, *range(len(self._kind.shape))):
                to = (*layout[:axis], new, *layout[axis + 1 :])
                if new != mark and to in self.number:
                    yield to, self._seconds(layout, axis, new)

    def _seconds(self, layout: Layout, axis: int, new: int) -> float:
        mark, local_bytes = layout[axis], self._local_bytes(layout)
        # A block that stands inside of another axis's is moved to its place first, or afterwards.
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
