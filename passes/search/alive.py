"""Memory of a device at some points of a step, depending on the layouts of values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

import numpy as np

from shardc.passes.fuse.reading.view import VIEWS
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Program, carried_values
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.layout import WHOLE, Layout, parts_of

_EACH = 4
"""Number of points in each phase."""
_SMALL_BYTES = 1 << 12
"""Smaller values are ignored."""


class Alive:
    """Liveness of values at points of the step, at which the search bounds memory.

    A point is a call. Each phase has several parts with as many calls, and each part the point at which a
    single device would hold the most. A value lives from the call that computes it to the end of the last
    call that reads it or a view of it. State lives until its replacement is computed. Other arguments always
    live, and sums over micro-batches live from the first micro-batch on.
    """

    def __init__(self, program: Program, axes: SearchAxes) -> None:
        self._program, self._axes = program, axes
        self._owner = _owners(program)
        self._returned = frozenset(program.returns)
        self._replaced = {old for old, _ in carried_values(program)}
        self._until: dict[int, float] = {}
        for value in range(len(program.values)):
            owner = self._owner[value]
            self._until[owner] = max(self._until.get(owner, -1), self._last(value))
        self.points = tuple(_points([phase_of(node.op) for node in program.nodes], self._single()))

    def bytes_of(self, value: int, layouts: tuple[Layout, ...]) -> np.ndarray | None:
        """Return [point, state]: bytes of the value at each point in each layout; None if it takes none."""
        type_ = self._program.types[value]
        if self._owner[value] != value or type_.size_bytes < _SMALL_BYTES:
            return None
        is_summed = any(layouts[0][axis] < WHOLE for axis in self._axes.time)
        begin = -1 if is_summed else self._program.producer[value]
        alive = np.array([begin <= point <= self._until[value] for point in self.points], float)
        if not alive.any():
            return None
        local = type_.size_bytes / parts_of(layouts, self._axes.sizes) * self._axes.held(layouts)
        return alive[:, None] * local[None, :]

    def _single(self) -> np.ndarray:
        """Return the bytes that a single device would hold during each call."""
        program, count = self._program, len(self._program.nodes)
        change = np.zeros(count + 1)
        for value, until in self._until.items():
            size_bytes = program.types[value].size_bytes
            change[max(program.producer[value], 0)] += size_bytes
            change[int(min(until + 1, count))] -= size_bytes
        return change.cumsum()

    def _last(self, value: int) -> float:
        is_given = self._program.producer[value] < 0 and value not in self._replaced
        if is_given or value in self._returned:
            return inf
        return max(self._program.users[value], default=-1)


def _points(phases: Sequence[str], held_bytes: np.ndarray) -> Iterator[int]:
    for phase in dict.fromkeys(phases):
        numbers = np.array([number for number, other in enumerate(phases) if other == phase])
        for part in np.array_split(numbers, _EACH):
            if len(part):
                yield int(part[held_bytes[part].argmax()])


def _owners(program: Program) -> list[int]:
    """Return, for each value, the value whose memory it uses: itself, or the base of a view."""
    owners: list[int] = list(range(len(program.values)))
    for node in program.nodes:
        if node.spec.target in VIEWS and node.operands:
            owners[node.results[0]] = owners[node.operands[0]]
    return owners
