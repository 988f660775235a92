"""What happens in one row of a nest: the loops of its stages, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import prod

from torch_mlir import ir
from torch_mlir.dialects import arith, scf

from shardc.backends.body.combiner import combine
from shardc.backends.body.graph import Computed, Generic
from shardc.backends.body.linear import Axis, Linear, row_major
from shardc.backends.body.roots import Root
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emit.buffers import Buffers, width_bytes
from shardc.backends.cpu.emit.element import Elements, Kept, Place
from shardc.backends.cpu.emit.loops import bounded_loop, interleave
from shardc.backends.cpu.emit.nests import Nest
from shardc.backends.cpu.emit.stages import Loop, Stages
from shardc.backends.cpu.emit.streams import LINE_BYTES, Stream
from shardc.backends.cpu.lanes.extremes import checked, is_extreme, step
from shardc.dialects.kern.size import AnySize

_FIRST = "where the piece begins"
Result = tuple[Root, int]
Targets = dict[Result, ir.Value | None]
"""The memory of each result that has some."""


@dataclass(eq=False)
class Row:
    """Writes rows. ``targets``: memory of each result that has some; ``sums``: where carried terms are added
    (buffer, base).

    ``bounds`` replaces the bounds of an axis, where a thread takes part of it. ``streams`` are the results of
    each loop that are written past the caches.
    """

    nest: Nest
    stages: Stages
    elements: Elements
    buffers: Buffers
    targets: Targets
    computed: dict[tuple[Generic, int], Computed]
    config: Config
    sums: dict[Result, tuple[ir.Value, ir.Value]] = field(default_factory=dict)
    bounds: dict[Axis, tuple[ir.Value, ir.Value]] = field(default_factory=dict)
    streams: dict[Loop, list[Stream]] = field(default_factory=dict)

    def place(self, row: ir.Value) -> Place:
        """Row number ``row`` of all, as a position on each of the row axes."""
        axes = {}
        for at, axis in reversed(list(enumerate(self.nest.rows))):
            size = self.elements.number(self.nest.sizes[axis])
            axes[axis] = arith.remui(row, size) if at else row
            row = arith.divui(row, size) if at else row
        return Place(axes)

    def emit(self, place: Place) -> None:
        for stage in self.stages.stages:
            for loop in stage:
                self._loop(loop, place)
            for (value, index), root in self.stages.again.items():
                if any(root in loop.roots for loop in stage):
                    self.elements.kept[value, index] = Kept(
                        self.targets[root, 0], row_major(index, value.shape)
                    )

    def _loop(self, loop: Loop, place: Place) -> None:
        for root, n in self._lanes(loop):
            self._open_lanes(loop, root, n, place)
        for value, index in loop.kept:
            buffer = self.buffers.add("private", self._count(loop.axes), value.element)
            self.elements.kept[value, index] = Kept(buffer, self._offset(loop.axes))
        registers = self._registers(loop)
        carry = [self._start(root, n, place) for root, n in registers]
        carry += [self._zero(root) for root, _ in self._extremes(loop)]
        in_pieces = self._fetches(loop) or self.streams.get(loop)
        ends = (
            self._in_pieces(loop, place, carry) if in_pieces else self._nested(loop, loop.axes, place, carry)
        )
        found = dict(zip(registers, ends, strict=False))
        for key, squares in zip(self._extremes(loop), ends[len(registers) :], strict=True):
            found[key] = checked(found[key], squares)
        for (root, n), end in found.items():
            self._close_register(root, n, end, place)
        for root, n in self._lanes(loop):
            self._close_lanes(loop, root, n, place)

    def _nested(self, loop: Loop, axes: list[Axis], place: Place, carry: list[ir.Value]) -> list[ir.Value]:
        if not axes:
            return self._step(loop, place, carry)
        if axes[0] in self.nest.written_out:
            for position in range(self.nest.sizes[axes[0]]):
                inside = place.inside({axes[0]: self.elements.number(position)})
                carry = self._nested(loop, axes[1:], inside, carry)
            return carry
        low, high = self.bounds.get(axes[0], (0, self.nest.sizes[axes[0]]))
        with bounded_loop(self.elements, low, high, carry=carry) as (position, made):
            ends = self._nested(loop, axes[1:], place.inside({axes[0]: position}), list(made.inner_iter_args))
            if carry:
                scf.YieldOp(ends)
        if carry and len(axes) == 1 and isinstance(high, int) and high >= self.config.piece:
            interleave(made, self.config.sums)
        return list(made.results)

    def _fetches(self, loop: Loop) -> bool:
        return not self.bounds and fetches(self.nest, loop, self.config.piece)

    def _in_pieces(self, loop: Loop, place: Place, carry: list[ir.Value]) -> list[ir.Value]:
        """The loop in pieces: before each, a piece of what the next row reads first is fetched; after it,
        what it made of the loop's streams is written.

        8192 rows of 2048: with the fetches an rms norm takes four fifths of the time. All of the next row at
        once would fill the core's list of pending fetches, which its own loads and stores need.
        """
        elements, (axis, *parts) = self.elements, loop.axes
        low, high = self.bounds.get(axis, (0, self.nest.sizes[axis]))
        with bounded_loop(elements, low, high, self.config.piece, carry) as (first, pieces):
            end = arith.addi(first, elements.number(self.config.piece))
            if self.bounds or high % self.config.piece:
                end = arith.minui(end, high if self.bounds else elements.number(high))
            if self._fetches(loop):
                self._fetch(loop, place, first, end)
            with bounded_loop(elements, first, end, carry=list(pieces.inner_iter_args)) as (position, steps):
                inside = Place({**place.axes, axis: position}, {_FIRST: first}, place)
                ends = self._nested(loop, parts, inside, list(steps.inner_iter_args))
                if carry:
                    scf.YieldOp(ends)
                    interleave(steps, self.config.sums)
            for stream in self.streams.get(loop, ()):
                stream.write(elements, place, first, end)
            if carry:
                scf.YieldOp(list(steps.results))
        return list(pieces.results)

    def _fetch(self, loop: Loop, place: Place, first: ir.Value, end: ir.Value) -> None:
        """Fetches of the next row what belongs to these steps of a loop. Where no rows are written, of the
        row after it: the last lines of the next one would come too late.
        """
        elements, number, (row,), axis = self.elements, self.elements.number, self.nest.rows, loop.axes[0]
        rows = 1 if any(axis in root.parallel for root in self.nest.roots) else 2
        below = arith.minui(arith.addi(place.axes[row], number(rows)), number(self.nest.sizes[row] - 1))
        for value, index in loop.ahead:
            width = width_bytes(value.element)
            level = 1 if self.nest.sizes[axis] * width <= self.config.near_bytes else 2
            with bounded_loop(elements, first, end, LINE_BYTES // width) as (position, _):
                offset = row_major(index, value.shape)
                elements.fetch(value, elements.position(offset, Place({row: below, axis: position})), level)

    def _step(self, loop: Loop, place: Place, carry: list[ir.Value]) -> list[ir.Value]:
        """One step of the innermost loop."""
        elements = self.elements
        registers = self._registers(loop)
        accumulators = dict(zip(registers, carry, strict=False))
        squares = dict(zip(self._extremes(loop), carry[len(registers) :], strict=True))
        hidden = {key: elements.kept.pop(key) for key in loop.kept}
        for key, kept in hidden.items():
            elements.store(elements.element(*key, place), kept.buffer, elements.position(kept.offset, place))
        stored = [root for root in loop.roots if not root.is_reduction]
        made = [
            elements.element(root.value, root.dims, place) for root in stored
        ]  # all, before one is stored in place
        streams = {stream.root: stream for stream in self.streams.get(loop, ())}
        for root, value in zip(stored, made, strict=True):
            if stream := streams.get(root):
                elements.store(value, stream.buffer, stream.at(elements, place, place.find(_FIRST)))
                continue
            position = elements.position(row_major(root.dims, root.value.shape), place)
            elements.store(value, self.targets[root, 0], position)
        lanes = {key: self._lane(loop, *key, place) for key in self._lanes(loop)}
        for root in loop.roots:
            if (root, 0) in squares:
                found = step(root, accumulators[root, 0], squares[root, 0], elements, place)
                accumulators[root, 0], squares[root, 0] = found
            elif root.is_reduction:
                keys = [(root, n) for n in range(root.result_count())]
                old = {
                    key[1]: accumulators[key]
                    if key in accumulators
                    else elements.load(*lanes[key], _element(*key))
                    for key in keys
                }
                for key, new in zip(keys, elements.results(root.generic, root.dims, old, place), strict=True):
                    if key in accumulators:
                        accumulators[key] = new
                    else:
                        elements.store(new, *lanes[key])
        elements.kept.update(hidden)
        return [*accumulators.values(), *squares.values()]

    def _registers(self, loop: Loop) -> list[Result]:
        """Results that one register accumulates."""
        return [key for key in _results(loop) if not self._lane_axes(loop, key[0])]

    def _extremes(self, loop: Loop) -> list[Result]:
        """Those of :meth:`_registers` beside which another one adds up squares."""
        return [key for key in self._registers(loop) if is_extreme(key[0])]

    def _lanes(self, loop: Loop) -> list[Result]:
        """Results that accumulate in memory, because their loops inside the row are not all reductions."""
        return [key for key in _results(loop) if self._lane_axes(loop, key[0])]

    def _lane_axes(self, loop: Loop, root: Root) -> list[Axis]:
        return [a for a in loop.axes if a in root.parallel]

    def _start(self, root: Root, n: int, place: Place) -> ir.Value:
        if self.nest.carried(root) or is_extreme(root):
            return self.elements.scalar(root.combiners[n].identity)
        return self._init(root, n, place)

    def _init(self, root: Root, n: int, place: Place) -> ir.Value:
        return self.elements.element(root.generic.inits[n], root.result_index(n), place)

    def _zero(self, root: Root) -> ir.Value:
        return self.elements.scalar(ir.FloatAttr.get(root.combiners[0].identity.type, 0.0))

    def _close_register(self, root: Root, n: int, end: ir.Value, place: Place) -> None:
        elements, index = self.elements, root.result_index(n)
        if self.nest.carried(root):
            buffer, at = self.sums[root, n]
            elements.store(combine(root.combiners[n], elements.load(buffer, at, end.type), end), buffer, at)
            return
        if is_extreme(root):
            end = combine(root.combiners[n], self._init(root, n, place), end)
        place.known[self.computed[root.generic, n], index] = end
        if self.targets[root, n] is not None:
            position = elements.position(row_major(index, root.result_shape(n)), place)
            elements.store(end, self.targets[root, n], position)

    def _lane(self, loop: Loop, root: Root, n: int, place: Place) -> tuple[ir.Value, ir.Value]:
        """Where the accumulator of this step lies: buffer and position."""
        elements = self.elements
        if self.nest.carried(root):
            buffer, first = self.sums[root, n]
            position = elements.position(row_major(root.result_index(n), root.result_shape(n)), place)
            return buffer, arith.addi(first, position)
        kept = elements.kept[self.computed[root.generic, n], root.result_index(n)]
        return kept.buffer, elements.position(kept.offset, place)

    def _open_lanes(self, loop: Loop, root: Root, n: int, place: Place) -> None:
        if self.nest.carried(root):
            return
        elements, axes, index = self.elements, self._lane_axes(loop, root), root.result_index(n)
        buffer = self.buffers.add("private", self._count(axes), _element(root, n))
        kept = elements.kept[self.computed[root.generic, n], index] = Kept(buffer, self._offset(axes))
        with self._loops(axes, place) as inside:
            start = elements.element(root.generic.inits[n], index, inside)
            elements.store(start, buffer, elements.position(kept.offset, inside))

    def _close_lanes(self, loop: Loop, root: Root, n: int, place: Place) -> None:
        if self.nest.carried(root) or self.targets[root, n] is None:
            return
        elements, index = self.elements, root.result_index(n)
        with self._loops(self._lane_axes(loop, root), place) as inside:
            value = elements.element(self.computed[root.generic, n], index, inside)
            position = elements.position(row_major(index, root.result_shape(n)), inside)
            elements.store(value, self.targets[root, n], position)

    @contextmanager
    def _loops(self, axes: list[Axis], place: Place) -> Iterator[Place]:
        with ExitStack() as stack:
            for axis in axes:
                position, _ = stack.enter_context(bounded_loop(self.elements, 0, self.nest.sizes[axis]))
                place = place.inside({axis: position})
            yield place

    def _count(self, axes: list[Axis]) -> AnySize:
        return prod(self.nest.sizes[a] for a in axes)

    def _offset(self, axes: list[Axis]) -> Linear:
        return row_major(tuple(map(Linear.axis, axes)), tuple(self.nest.sizes[a] for a in axes))


def fetches(nest: Nest, loop: Loop, piece: int) -> bool:
    """Whether a loop fetches what the next row reads: what it writes leaves the memory's reads idle
    otherwise.
    """
    sizes = [nest.sizes[a] for a in (*nest.rows, *loop.axes)]
    return bool(loop.ahead) and all(isinstance(n, int) for n in sizes) and sizes[-1] >= 2 * piece


def _results(loop: Loop) -> list[Result]:
    return [(root, n) for root in loop.roots if root.is_reduction for n in range(root.result_count())]


def _element(root: Root, n: int) -> ir.Type:
    return root.generic.inits[n].element
