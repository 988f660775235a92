"""Generation of one row of a nest: the loops of its stages, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import prod

from torch_mlir import ir
from torch_mlir.dialects import arith, scf

from shardc.backends.body.combiner import combine
from shardc.backends.body.graph import Computed, Generic, Value
from shardc.backends.body.linear import Axis, Index, Linear, row_major
from shardc.backends.body.roots import Root
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emit.buffers import Buffers, width_bytes
from shardc.backends.cpu.emit.element import Elements, Kept, Place
from shardc.backends.cpu.emit.loops import bounded_loop, carrying_loop, interleave
from shardc.backends.cpu.emit.nests import Nest
from shardc.backends.cpu.emit.result import Result, results_of
from shardc.backends.cpu.emit.stages import Loop, Stages
from shardc.backends.cpu.emit.streams import LINE_BYTES, Stream
from shardc.backends.cpu.lanes.extremes import checked, is_extreme, step
from shardc.backends.cpu.object_code.marks import LONG_LOOP, LOOP, SHORT_LOOP, VECTORS

_FIRST = "where the piece begins"
SHORTEST_SUM = 9
"""Least number of terms that are added in several vectors, by :func:`interleave` (rows of 40 squares: 1.66 of
TorchInductor's time without, 1.03 with it). LLVM unrolls sums of fewer than :data:`LONG_SUM` terms. Then it
takes rows as lanes, and reads memory with a stride: norms of 16 took 3.2 of its time, and take 1.0."""
LONG_SUM, SUM_OF_A_VECTOR = 32, 16
"""Terms of a sum that is always added in vectors, and of a sum with one vector."""
FEW_VECTORS = 8
"""Most vectors of a sum that are added in as many steps as leave none; more of them wait for each other."""
LONG_TERM = 32
"""Ops of a term from which loops of sums may be unrolled: steps of a delta rule take 0.8 of the time."""
MOST_OF_A_ROW = 64
"""Most work for a row as a whole, in additions, for which short sums are. More of it, such as functions of
the sums, is faster with rows as lanes: four hyperbolic tangents and logarithms, 2.2 and 1.0 ms."""
Targets = dict[Result, ir.Value]
"""Result -> its memory, if it is written to memory."""


@dataclass(eq=False)
class Row:
    """Generator of rows.

    ``targets``: memory of results. ``sums``: (buffer, base) to which carried terms are added. ``bounds``:
    range of an axis that is divided among threads. ``streams``: results of each loop that are written with
    non-temporal stores.
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
        """Return the positions on the row axes of row number ``row``."""
        return Place(self.elements.spread({a: self.nest.sizes[a] for a in self.nest.rows}, row))

    def emit(self, place: Place) -> None:
        for stage in self.stages.stages:
            for loop in stage:
                self._loop(loop, place)
            for (value, index), root in self.stages.again.items():
                if any(root in loop.roots for loop in stage):
                    offset = row_major(index, value.shape)
                    self.elements.kept[value, index] = Kept(self.targets[Result(root)], offset)

    def _loop(self, loop: Loop, place: Place) -> None:
        for result in self._lanes(loop):
            self._open_lanes(loop, result, place)
        for value, index in loop.kept:
            self.elements.kept[value, index] = self._kept(loop.axes, value.element)
        registers = self._registers(loop)
        carry = [self._start(result, place) for result in registers]
        zeros = [ir.FloatAttr.get(r.combiner.identity.type, 0.0) for r in self._extremes(loop)]
        carry += map(self.elements.scalar, zeros)
        if self._fetches(loop) or self.streams.get(loop):
            ends = self._in_pieces(loop, place, carry)
        else:
            ends = self._nested(loop, loop.axes, place, carry)
        found = dict(zip(registers, ends, strict=False))
        for result, squares in zip(self._extremes(loop), ends[len(registers) :], strict=True):
            found[result] = checked(found[result], squares)
        for result, end in found.items():
            self._close_register(result, end, place)
        for result in self._lanes(loop):
            self._close_lanes(loop, result, place)

    def _nested(self, loop: Loop, axes: list[Axis], place: Place, carry: list[ir.Value]) -> list[ir.Value]:
        if not axes:
            return self._step(loop, place, carry)
        axis, *rest = axes
        if axis in self.nest.written_out:
            for position in range(int(self.nest.sizes[axis])):
                carry = self._nested(loop, rest, place.inside({axis: self.elements.number(position)}), carry)
            return carry
        low, high = self.bounds.get(axis, (0, self.nest.sizes[axis]))
        first = None
        if self.nest.block is not None and axis is self.nest.block[0]:  # LLVM knows a loop from 0 to be short
            first, low, high = low, 0, arith.subi(high, low)
        with carrying_loop(self.elements, low, high, carry) as (position, made):
            position = position if first is None else arith.addi(first, position)
            scf.YieldOp(self._nested(loop, rest, place.inside({axis: position}), list(made.inner_iter_args)))
        if not rest and isinstance(high, int):
            self._keep_vectors(made, loop, high)
        return list(made.results)

    def _keep_vectors(self, built: scf.ForOp, loop: Loop, steps: int) -> None:
        """Let LLVM make vectors of an innermost loop, which it may unroll first, unless a row is all work.

        Unrolled, sums that the loops around add to are registers, which is faster where much is computed for
        a term, and up to four times slower elsewhere.
        """
        long = self.nest.row_work > MOST_OF_A_ROW
        if self._registers(loop):
            if steps >= (LONG_SUM if long else SHORTEST_SUM):
                interleave(built, vectors_of(steps, self.config.sums))
            return
        lanes = [self._lane_axes(loop, result.root) for result in self._lanes(loop)]
        summed = lanes and steps % SUM_OF_A_VECTOR == 0 and all(axes == loop.axes[-1:] for axes in lanes)
        if summed and _varying(built) > LONG_TERM:
            return
        if (LONG_SUM if long else SHORT_LOOP) <= steps < LONG_LOOP:
            built.operation.attributes[LOOP] = ir.Attribute.parse(VECTORS)

    def _fetches(self, loop: Loop) -> bool:
        return not self.bounds and fetches(self.nest, loop, self.config.piece)

    def _in_pieces(self, loop: Loop, place: Place, carry: list[ir.Value]) -> list[ir.Value]:
        """Run the loop in pieces. Before each, prefetch a piece of the next row; after it, write the streams.

        For 8192 rows of 2048, prefetching reduces the time of an rms norm by a fifth. Prefetching the whole
        next row at once would fill the core's queue of pending loads, which its own loads and stores need.
        """
        elements, (axis, *parts) = self.elements, loop.axes
        low, high = self.bounds.get(axis, (0, self.nest.sizes[axis]))
        with carrying_loop(elements, low, high, carry, self.config.piece) as (first, pieces):
            end = arith.addi(first, elements.number(self.config.piece))
            if not isinstance(high, int) or high % self.config.piece:
                end = arith.minui(end, elements.number(high))
            if self._fetches(loop):
                self._fetch(loop, place, first, end)
            with carrying_loop(elements, first, end, list(pieces.inner_iter_args)) as (position, steps):
                inside = Place({**place.axes, axis: position}, place.known.new_child({_FIRST: first}))
                scf.YieldOp(self._nested(loop, parts, inside, list(steps.inner_iter_args)))
            if carry:
                interleave(steps, self.config.sums)
            for stream in self.streams.get(loop, ()):
                stream.write(elements, place, first, end)
            scf.YieldOp(list(steps.results))
        return list(pieces.results)

    def _fetch(self, loop: Loop, place: Place, first: ir.Value, end: ir.Value) -> None:
        """Prefetch the next row's data for these steps of a loop.

        If no rows are written, prefetch the row after the next: its last lines would otherwise come too late.
        """
        elements, number, (row,), axis = self.elements, self.elements.number, self.nest.rows, loop.axes[0]
        rows = 1 if any(axis in root.parallel for root in self.nest.roots) else 2
        after = arith.addi(place.axes[row], number(rows))
        below = arith.minui(after, number(int(self.nest.sizes[row]) - 1))
        for value, index in loop.ahead:
            width = width_bytes(value.element)
            level = 1 if int(self.nest.sizes[axis]) * width <= self.config.near_bytes else 2
            with bounded_loop(elements, first, end, LINE_BYTES // width) as position:
                offset = row_major(index, value.shape)
                elements.fetch(value, elements.position(offset, Place({row: below, axis: position})), level)

    def _step(self, loop: Loop, place: Place, carry: list[ir.Value]) -> list[ir.Value]:
        """Write one step of the innermost loop."""
        elements = self.elements
        registers = self._registers(loop)
        accumulators = dict(zip(registers, carry, strict=False))
        squares = dict(zip(self._extremes(loop), carry[len(registers) :], strict=True))
        hidden: dict[tuple[Value, Index], Kept] = {key: elements.kept.pop(key) for key in loop.kept}
        for key, kept in hidden.items():
            elements.store(elements.element(*key, place), kept.buffer, elements.kept_position(kept, place))
        self._store(loop, place)
        lanes = {result: self._lane(result, place) for result in self._lanes(loop)}
        for root in loop.roots:
            extremes = [result for result in results_of(root) if result in squares]
            for extreme in extremes:
                found = step(extreme, accumulators[extreme], squares[extreme], elements, place)
                accumulators[extreme], squares[extreme] = found
            if root.is_reduction and not extremes:
                self._accumulate(root, accumulators, lanes, place)
        elements.kept.update(hidden)
        return [*accumulators.values(), *squares.values()]

    def _store(self, loop: Loop, place: Place) -> None:
        """Store the results of a loop's pointwise roots in one step."""
        elements = self.elements
        stored = [Result(root) for root in loop.roots if not root.is_reduction]
        made = [elements.element(r.stored, r.index, place) for r in stored]  # read all before storing any
        streams = {stream.root: stream for stream in self.streams.get(loop, ())}
        for result, value in zip(stored, made, strict=True):
            if stream := streams.get(result.root):
                elements.store(value, stream.buffer, stream.at(elements, place, place.known[_FIRST]))
            else:
                elements.store(value, self.targets[result], elements.position(result.offset, place))

    def _accumulate(
        self, root: Root, accumulators: Targets, lanes: dict[Result, tuple[ir.Value, ir.Value]], place: Place
    ) -> None:
        """Add a term to each result of a root, in a register (``accumulators``) or in memory (``lanes``)."""
        elements, results = self.elements, results_of(root)
        old = {
            r.n: accumulators[r] if r in accumulators else elements.load(*lanes[r], r.element)
            for r in results
        }
        made = elements.results(results[0].generic, root.dims, old, place)
        for result, new in zip(results, made, strict=True):
            if result in accumulators:
                accumulators[result] = new
            else:
                elements.store(new, *lanes[result])

    def _registers(self, loop: Loop) -> list[Result]:
        """Return the results that are accumulated in a register."""
        return [result for result in _reductions(loop) if not self._lane_axes(loop, result.root)]

    def _extremes(self, loop: Loop) -> list[Result]:
        """Return the results of :meth:`_registers` for which a second register adds up squares."""
        return [result for result in self._registers(loop) if is_extreme(result.root)]

    def _lanes(self, loop: Loop) -> list[Result]:
        """Return the results accumulated in memory, because not all of their inner loops are reductions."""
        return [result for result in _reductions(loop) if self._lane_axes(loop, result.root)]

    def _lane_axes(self, loop: Loop, root: Root) -> list[Axis]:
        return [a for a in loop.axes if a in root.parallel]

    def _start(self, result: Result, place: Place) -> ir.Value:
        if self.nest.carried(result.root) or is_extreme(result.root):
            return self.elements.scalar(result.combiner.identity)
        return self._init(result, place)

    def _init(self, result: Result, place: Place) -> ir.Value:
        return self.elements.element(result.init, result.index, place)

    def _close_register(self, result: Result, end: ir.Value, place: Place) -> None:
        elements = self.elements
        if self.nest.carried(result.root):
            buffer, at = self.sums[result]
            elements.store(combine(result.combiner, elements.load(buffer, at, end.type), end), buffer, at)
            return
        if is_extreme(result.root):
            end = combine(result.combiner, self._init(result, place), end)
        place.known[self._key(result)] = end
        if result in self.targets:
            elements.store(end, self.targets[result], elements.position(result.offset, place))

    def _key(self, result: Result) -> tuple[Computed, Index]:
        """Return a reduction's result as the tensor that others read, and its index there."""
        return self.computed[result.generic, result.n], result.index

    def _lane(self, result: Result, place: Place) -> tuple[ir.Value, ir.Value]:
        """Return the buffer and position of this step's accumulator."""
        elements = self.elements
        if self.nest.carried(result.root):
            buffer, first = self.sums[result]
            return buffer, arith.addi(first, elements.position(result.offset, place))
        kept = elements.kept[self._key(result)]
        return kept.buffer, elements.kept_position(kept, place)

    def _open_lanes(self, loop: Loop, result: Result, place: Place) -> None:
        if self.nest.carried(result.root):
            return
        elements, axes = self.elements, self._lane_axes(loop, result.root)
        kept = elements.kept[self._key(result)] = self._kept(axes, result.element)
        with self._loops(axes, place) as inside:
            elements.store(self._init(result, inside), kept.buffer, elements.kept_position(kept, inside))

    def _close_lanes(self, loop: Loop, result: Result, place: Place) -> None:
        if self.nest.carried(result.root) or result not in self.targets:
            return
        elements = self.elements
        with self._loops(self._lane_axes(loop, result.root), place) as inside:
            value = elements.element(*self._key(result), inside)
            elements.store(value, self.targets[result], elements.position(result.offset, inside))

    @contextmanager
    def _loops(self, axes: list[Axis], place: Place) -> Iterator[Place]:
        with ExitStack() as stack:
            for axis in axes:
                low, high = self.bounds.get(axis, (0, self.nest.sizes[axis]))
                position = stack.enter_context(bounded_loop(self.elements, low, high))
                place = place.inside({axis: position})
            yield place

    def _kept(self, axes: list[Axis], element: ir.Type) -> Kept:
        """Add a private buffer for a value of a row, or of a block of it."""
        sizes, start = [self.nest.sizes[a] for a in axes], None
        if (block := self.nest.block) is not None:
            axis, sizes[-1] = block
            assert axes[-1] is axis, "a block is of the innermost axis"
            start = self.bounds[axis][0]
        offset = row_major(tuple(map(Linear.axis, axes)), tuple(sizes))
        return Kept(self.buffers.add("private", prod(sizes), element), offset, start)


def fetches(nest: Nest, loop: Loop, piece: int) -> bool:
    """Return True if a loop prefetches the next row. Otherwise memory reads would idle during its writes."""
    sizes = [nest.sizes[a] for a in (*nest.rows, *loop.axes)]
    return bool(loop.ahead) and all(isinstance(n, int) for n in sizes) and sizes[-1] >= 2 * piece


def vectors_of(terms: int, sums: int) -> int:
    """Return how many vectors are added at once, a power of two: ``sums``, or fewer so that none remain.

    LLVM adds the rest in a loop of their own. Sums of 80 and of 100 squares took 1.2 times as long with four.
    """
    vectors = terms // SUM_OF_A_VECTOR
    if vectors > FEW_VECTORS:
        return sums
    return max((n for n in (1, 2, 4, 8) if n <= sums and vectors % n == 0 and n <= vectors), default=1)


def _reductions(loop: Loop) -> list[Result]:
    return [result for root in loop.roots if root.is_reduction for result in results_of(root)]


def _varying(loop: scf.ForOp) -> int:
    """Return the number of ops in a loop's body that are not the same for all steps."""
    varying, count = {loop.induction_variable}, 0
    for op in (view.operation for view in loop.body.operations):
        if len(op.regions) or not varying.isdisjoint(op.operands):
            varying.update(op.results)
            count += 1
    return count
