"""Memory of a device at some points of a step, depending on the layouts of values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from shardc.passes.fuse.reading.view import VIEWS
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Program, carried_values
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.fold import part_of
from shardc.passes.search.layout import WHOLE, Layout, marks_array, parts_of

_EACH = 4
"""Parts of a phase, each with a point."""
SUM_BYTES = 4
"""Least bytes of an element of a sum over micro-batches (``passes/partition/form_loops.py``)."""
_SMALL_BYTES = 1 << 12
"""Smaller values are ignored."""


class Lives:
    """When values live, and the points of a step at which the search bounds memory.

    A point is a call. Each phase has several parts with as many calls, and each part the point at which a
    single device would hold the most. Each phase also has those with the most inner values, which only calls
    of the same phase read, and with the largest gradient, and the largest of the ``own`` calls, which are not
    like those of equal layers: meshes divide these differently. ``of_stages``: the points, of all, that bound
    memory in a pipeline, whose stages keep as much at all others.

    A value lives from the call that computes it to the end of the last call that reads it or a view of it.
    State lives until its replacement is computed. Other arguments always live. ``weights``: the calls that
    only gradients of weights need.
    """

    def __init__(self, program: Program, weights: Collection[int] = (), own: Collection[int] = ()) -> None:
        self.program, self._own = program, own
        self._owner = owners(program)
        self._returned = frozenset(program.returns)
        self._replaced = {old for old, _ in carried_values(program)}
        self.until: dict[int, float] = {}
        """The last call that reads a value or its views, by the value whose memory they are."""
        for value in range(len(program.values)):
            owner = self._owner[value]
            self.until[owner] = max(self.until.get(owner, -1), self._last(value))
        self._phases = [part_of(node) for node in program.nodes]
        self.points, self.of_stages = self._points([phase_of(node.op) for node in program.nodes])
        self.update = next((at for at, phase in enumerate(self._phases) if phase == "optimizer"), inf)
        self.shared = self._read_by_both(weights)
        """Values that calls of weights' gradients read, and others of backward, too: a gather serves both."""
        self.late = self._read_late(weights)
        """Other values, by whose memory they are, that calls of weights' gradients read of others."""
        self._read_as = {self._first_read(value): value for value in self.until}
        """Values that several calls may read -> the values whose memory they use."""

    def owner(self, value: int) -> int:
        """Return the value whose memory a value uses."""
        return self._owner[value]

    def is_large(self, value: int) -> bool:
        """Return whether a value has memory of its own that counts."""
        return self._owner[value] == value and self.program.types[value].size_bytes >= _SMALL_BYTES

    def copied(self, value: int) -> int | None:
        """Return the value whose memory is no longer used once a copy of ``value`` in another layout exists.

        None if it stays in use, as state and results of the step do.
        """
        owner = self._read_as.get(value)
        if owner is None or self.program.producer[owner] < 0 or self.until[owner] == inf:
            return None
        return owner if self.program.types[owner].size_bytes >= _SMALL_BYTES else None

    def is_kept(self, value: int, begin: int) -> bool:
        """Return whether a value that is there from call ``begin`` of forward on is read in backward."""
        return self._phase(begin) == "forward" != self._last_phase(value)

    def is_inner(self, value: int, begin: int, marks: Sequence[int] = ()) -> bool:
        """Return whether a value that is there from call ``begin`` on is only there in that call's phase.

        Of equal layers, one holds it at a time, for one micro-batch. ``marks``: how axes of time split it.
        What they do not split is computed before all micro-batches of its phase, and not inner.
        """
        phase = self._phase(begin)
        is_part = not marks or max(marks) > WHOLE or phase == "optimizer"
        return is_part and bool(phase) and phase == self._last_phase(value)

    def _phase(self, call: float) -> str:
        """Return the phase of a call; empty if there is no such call."""
        return self._phases[int(call)] if 0 <= call < len(self._phases) else ""

    def _last_phase(self, value: int) -> str:
        """Return the phase of the last call that reads a value; empty if it outlives the step."""
        return self._phase(self.until[value])

    def _points(self, phases: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the points in order, and which of them a pipeline has."""
        maker = self.program.producer
        inner = {value: until for value, until in self.until.items() if self.is_inner(value, maker[value])}
        # Until it is added to others, the gradient of a micro-batch is an inner value, too.
        single = {v: maker[v] for v in self.until if self._phase(maker[v]) == "backward" and v not in inner}
        kinds = [self._single(values) for values in (self.until, inner, single)]
        kinds.append(np.array([self._size_bytes(number) for number in range(len(phases))]))
        few = {point for held_bytes in kinds for point in _fullest(phases, held_bytes, 1)}
        points = np.array(sorted({*few, *_fullest(phases, kinds[0], _EACH)}))
        return points, np.isin(points, list(few))

    def _read_late(self, weights: Collection[int]) -> frozenset[int]:
        """Return the values whose memory calls that compute weights' gradients read of others.

        Those that count as shared are not among them.
        """
        shared = {self._owner[value] for value in self.shared}
        return frozenset(self._owner[value] for value in self._read_of_others(weights)) - shared

    def _read_of_others(self, weights: Collection[int]) -> frozenset[int]:
        """Return the values that calls of ``weights`` read and other calls compute."""
        nodes, producer = self.program.nodes, self.program.producer
        read = {value for number in weights for value in nodes[number].operands}
        return frozenset(v for v in read if producer[self._owner[v]] >= 0 and producer[v] not in weights)

    def _read_by_both(self, weights: Collection[int]) -> frozenset[int]:
        """Return the values that calls of ``weights`` and other calls of backward read."""
        users = self.program.users
        return frozenset(
            value
            for value in self._read_of_others(weights)
            if any(self._phase(user) == "backward" and user not in weights for user in users[value])
        )

    def _first_read(self, value: int) -> int:
        """Return the value itself, or its view, through which all calls read it."""
        program = self.program
        while len(program.users[value]) == 1:
            node = program.nodes[next(iter(program.users[value]))]
            is_view = node.spec.target in VIEWS and len(node.results) == 1 and node.operands[0] == value
            if not is_view or program.types[node.results[0]].numel != program.types[value].numel:
                break
            value = node.results[0]
        return value

    def _single(self, values: Mapping[int, float]) -> np.ndarray:
        """Return the bytes of ``values`` that a single device would hold during each call.

        They are given with the last call that needs each.
        """
        program, count = self.program, len(self.program.nodes)
        change = np.zeros(count + 1)
        for value, until in values.items():
            size_bytes = program.types[value].size_bytes
            change[max(program.producer[value], 0)] += size_bytes
            change[int(min(until + 1, count))] -= size_bytes
        return change.cumsum()

    def _size_bytes(self, call: int) -> float:
        """Return the bytes of what one of the own calls reads and makes; 0 for others."""
        if call not in self._own:
            return 0.0
        node, types = self.program.nodes[call], self.program.types
        owners = {self._owner[value] for value in (*node.operands, *node.results)}
        return float(sum(types[owner].size_bytes for owner in owners))

    def _last(self, value: int) -> float:
        is_given = self.program.producer[value] < 0 and value not in self._replaced
        if is_given or value in self._returned:
            return inf
        return max(self.program.users[value], default=-1)


class Alive:
    """Memory of a device at points of the step, by the layouts of values.

    From its first reader on a value lives in the layout of its readers, if they share one. Sums over
    micro-batches live from the first micro-batch on, those of halves in f32; the call that computes a
    micro-batch's term holds that, too. Of equal layers, one holds its inner values at a time, for one
    micro-batch. In a pipeline, stages run forward and backward in turn, and keep what backward reads all the
    time.

    If gradients of weights are computed later than others, there is one more point: the last stage has then
    computed all others. It holds, for each micro-batch, what the calls of weights read.
    """

    def __init__(self, lives: Lives, axes: SearchAxes) -> None:
        self._lives, self._axes = lives, axes
        self._points = lives.points[lives.of_stages] if axes.stages > 1 else lives.points
        self._is_split = axes.form.is_split and axes.trips > 1
        self._parts: dict[int, _Parts] = {}

    @property
    def moments(self) -> int:
        """Return the number of points, with the one at which weights' gradients are left."""
        return len(self._points) + self._is_split

    def bytes_of(
        self, value: int, layouts: tuple[Layout, ...], weight: float, first: int | None = None
    ) -> np.ndarray | None:
        """Return [point, state]: bytes of a value at each point in each layout; None if it takes none.

        ``weight``: the number of values for which it stands. ``first``: the call from which on it counts;
        default: the one that computes it.
        """
        lives = self._lives
        if first is not None:
            return self._during(value, layouts, first, weight)
        if not lives.is_large(value):
            return None
        maker, is_summed = lives.program.producer[value], self._is_summed(layouts)
        held = self._during(value, layouts, -1 if is_summed else maker, weight)
        if is_summed and held is not None and maker >= 0:
            held[: len(self._points)] += np.outer(self._points == maker, self._local(value, layouts))
        return held

    def waiting_bytes(self, value: int, layouts: tuple[Layout, ...], weight: float) -> np.ndarray | None:
        """Return [point, state]: bytes of a shared value that waits for gradients of weights in ``layouts``.

        None if none does. ``weight``: as in :meth:`bytes_of`.
        """
        if not self._is_split or value not in self._lives.shared:
            return None
        first = self._lives.program.producer[value]
        copies = weight * self._of(layouts).copies[self._lives.is_kept(value, first)]
        held = np.zeros((self.moments, len(layouts)))
        held[-1] = copies * self._local(value, layouts)
        return held

    def kept_bytes(
        self, value: int, layouts: tuple[Layout, ...], weight: float, first: int | None = None
    ) -> np.ndarray | None:
        """Return [state]: bytes of a value that a rank of a pipeline keeps for a micro-batch, as a mean.

        None if it keeps none. Arguments are as in :meth:`bytes_of`.
        """
        begin = self._lives.program.producer[value] if first is None else first
        is_part = any(layouts[0][axis] > WHOLE for axis in self._axes.time)
        if not is_part or not self._lives.is_large(value) or not self._lives.is_kept(value, begin):
            return None
        return self._local(value, layouts) * weight / self._axes.stages

    def _during(
        self, value: int, layouts: tuple[Layout, ...], begin: int, weight: float
    ) -> np.ndarray | None:
        lives, until = self._lives, self._lives.until[value]
        is_kept = lives.is_kept(value, begin)
        alive = (begin <= self._points) & (self._points <= until)
        if is_kept and self._axes.stages > 1:
            alive = self._points < lives.update
        is_late = self._is_split and ((begin < 0 and until >= lives.update) or value in lives.late)
        if not is_late and not alive.any():
            return None
        local = self._local(value, layouts)
        all_bytes = weight * self._of(layouts).copies[is_kept] * local
        held = np.outer(alive, local if self._is_inner(value, layouts, begin) else all_bytes)
        return np.vstack([held, is_late * all_bytes]) if self._is_split else held

    def _is_summed(self, layouts: tuple[Layout, ...]) -> bool:
        """Return whether a value is a sum over micro-batches."""
        return any(layouts[0][axis] < WHOLE for axis in self._axes.time)

    def _is_inner(self, value: int, layouts: tuple[Layout, ...], begin: int) -> bool:
        """Return whether one layer holds a value at a time, from call ``begin`` on."""
        return self._lives.is_inner(value, begin, [layouts[0][axis] for axis in self._axes.time])

    def _local(self, value: int, layouts: tuple[Layout, ...]) -> np.ndarray:
        """Return the bytes of a device's part of a value in each layout."""
        type_, of = self._lives.program.types[value], self._of(layouts)
        size = type_.numel, type_.dtype.itemsize
        if size not in of.local:
            width = np.where(of.is_sum, max(size[1], SUM_BYTES), size[1])
            of.local[size] = size[0] * width / of.parts
        return of.local[size]

    def _of(self, layouts: tuple[Layout, ...]) -> _Parts:
        """Return what is computed once for layouts that are one object."""
        found = self._parts.get(id(layouts))
        if found is None:
            is_sum = (marks_array(layouts, len(self._axes.axes))[:, self._axes.time] < WHOLE).any(axis=1)
            copies = [self._axes.held(layouts, is_kept) for is_kept in (False, True)]
            found = _Parts(layouts, parts_of(layouts, self._axes.sizes), is_sum, copies)
            self._parts[id(layouts)] = found
        return found


@dataclass
class _Parts:
    """Parts of values on a device in several ``layouts``, all [state].

    ``parts``: the parts of a value. ``is_sum``: whether it is a sum over micro-batches. ``copies``: what
    :meth:`SearchAxes.held` returns for values that are not kept until backward, and for those that are.
    ``local``: bytes of a device's part, by a value's elements and their bytes.
    """

    layouts: tuple[Layout, ...]
    parts: np.ndarray
    is_sum: np.ndarray
    copies: Sequence[np.ndarray]
    local: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)


def _fullest(phases: Sequence[str], held_bytes: np.ndarray, parts: int) -> Iterator[int]:
    """Yield the call that holds the most in each of so many parts of each phase."""
    for phase in dict.fromkeys(phases):
        numbers = np.array([number for number, other in enumerate(phases) if other == phase])
        for part in np.array_split(numbers, parts):
            if held_bytes[part].any():
                yield int(part[held_bytes[part].argmax()])


def owners(program: Program) -> list[int]:
    """Return, for each value, the value whose memory it uses: itself, or the base of a view."""
    owners: list[int] = list(range(len(program.values)))
    for node in program.nodes:
        if node.spec.target in VIEWS and node.operands:
            owners[node.results[0]] = owners[node.operands[0]]
    return owners
