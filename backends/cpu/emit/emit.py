"""Loops from a graph: ``@name_body(thread, threads, sizes..., inputs..., outputs..., workspace...)``."""

from __future__ import annotations

from math import prod

from torch_mlir import ir
from torch_mlir.dialects import arith

from shardc.backends.body.axes import join_axes
from shardc.backends.body.combiner import Combiner, combine
from shardc.backends.body.contraction import Contraction
from shardc.backends.body.graph import Computed, Graph, Slice, Value
from shardc.backends.body.linear import Axis
from shardc.backends.body.nest import check_in_place, recursion
from shardc.backends.body.roots import Root, Roots
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emit.buffers import Buffers, Emitted, memory, padded
from shardc.backends.cpu.emit.computed_once import roots_of
from shardc.backends.cpu.emit.element import Elements, Place
from shardc.backends.cpu.emit.loops import barrier, bounded_loop, share
from shardc.backends.cpu.emit.nests import Nest, find_nests, read_later
from shardc.backends.cpu.emit.result import Result, results_of
from shardc.backends.cpu.emit.row import Row, Targets
from shardc.backends.cpu.emit.stages import Loop, Stages, find_stages, work_of
from shardc.backends.cpu.emit.streams import LINE_BYTES, Stream, order_stores, streams_of
from shardc.backends.cpu.emit.turn import Turn
from shardc.backends.cpu.matmul.nest import Matmul
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.dialects.kern.size import AnySize, hint
from shardc.passes.fuse.bodies.flat import SIZE


def emit(graph: Graph, module: ir.Module) -> Emitted:
    """Add the function of ``graph`` to ``module``."""
    with recursion(1000 + 20 * len(graph.generics)):  # elements are computed recursively along ops
        return _emit(graph, module)


def _emit(graph: Graph, module: ir.Module) -> Emitted:
    roots = roots_of(graph)
    join_axes(roots)
    reads = {root: roots.reads(root) for root in roots.items}
    nests = find_nests(roots, reads)
    check_in_place(roots, reads, nests)
    writer = _Writer(graph, roots, module)
    for nest in nests:
        later = read_later(nest, nests, roots, reads)
        if nest.contraction is not None:
            writer.matmul(nest, nest.contraction, later)
        else:
            writer.nest(nest, find_stages(nest, roots, reads, writer.config), later)
    return writer.finish()


class _Writer:
    def __init__(self, graph: Graph, roots: Roots, module: ir.Module) -> None:
        self.graph, self.roots, self.config = graph, roots, Config.of(graph.config)
        given = {a.position: memory(prod(a.shape), a.element) for a in reversed(graph.arguments)}
        inputs = [given[n] for n in range(graph.inputs)]
        new = [n for n in range(len(graph.results)) if n not in graph.in_place]
        outputs = [memory(prod(v.shape), v.element) for v in map(graph.results.__getitem__, new)]
        sizes = 1 if graph.flat else len(graph.symbols)
        self.buffers = Buffers(graph.name, sizes, [*inputs, *outputs], module)
        self.block = self.buffers.block
        self.thread, self.threads, *arguments = self.block.arguments
        self.size = arguments[0] if graph.flat else None
        symbols = dict(zip(graph.symbols, arguments, strict=False))
        arguments = arguments[sizes:]
        self.outputs = {number: arguments[at] for number, at in graph.in_place.items()}
        self.outputs.update(zip(new, arguments[len(inputs) :], strict=True))
        in_memory: dict[Value, ir.Value] = {a: arguments[a.position] for a in graph.arguments}
        self.elements = Elements(self.block, in_memory, symbols, graph.sizes)
        self.computed = {(v.generic, v.number): v for v in graph.computed}

    def finish(self) -> Emitted:
        graph, buffers, per_thread = self.graph, self.buffers, self.config.work_per_thread
        buffers.finish()
        work = work_of(self.roots)
        if graph.flat and buffers.kinds:
            raise KernelNotSupported(what="a flat kernel that keeps values in memory")
        outputs, threads = len(self.outputs) - len(graph.in_place), max(1, hint(work) // per_thread)
        flat, sizes = max(1, per_thread * SIZE // work) if graph.flat else 0, len(graph.symbols)
        return Emitted(graph.name, graph.inputs, outputs, threads, buffers, flat, sizes, work, per_thread)

    def matmul(self, nest: Nest, contraction: Contraction, read_later: set[Root]) -> None:
        """Write the loops of a nest with a contraction."""
        with ir.InsertionPoint(self.block):
            targets = self._begin(nest, read_later)
            value, config = self.computed[Result(contraction.root).generic, 0], self.config
            Matmul(nest, contraction, self.roots, value, config, self.elements, self.buffers, targets).emit()
            self._written(targets)

    def nest(self, nest: Nest, stages: Stages, read_later: set[Root]) -> None:
        """Write the loops of one nest, and the reduction of the threads' partial sums."""
        with ir.InsertionPoint(self.block):
            targets = self._begin(nest, read_later)
            partials = {result: self._partial(result) for result in targets if nest.carried(result.root)}
            row = Row(nest, stages, self.elements, self.buffers, targets, self.computed, self.config)
            row.streams = self._streams(nest, stages, read_later, targets)
            (self._split if nest.split else self._rows)(nest, row, partials)
            if row.streams:
                order_stores()
            self.elements.kept.clear()
            if partials:
                barrier()
            for result, partial in partials.items():
                self._join(result, partial, targets[result])
            self._written(targets)

    def _streams(
        self, nest: Nest, stages: Stages, read_later: set[Root], targets: Targets
    ) -> dict[Loop, list[Stream]]:
        """Return the results that the loops of a nest write with non-temporal stores."""
        config = self.config
        found: dict[Loop, list[Stream]] = {}
        for loop, members in streams_of(nest, stages, self.graph, read_later, config.streamed_bytes).items():
            axis, *parts = loop.axes
            sizes = {part: int(nest.sizes[part]) for part in parts}
            into = [(root, targets[Result(root)]) for root in members]
            found[loop] = [Stream(r, axis, sizes, config.piece, t, self.buffers) for r, t in into]
        return found

    def _begin(self, nest: Nest, read_later: set[Root]) -> Targets:
        """Return the memory of each result of a nest that is written to memory."""
        if nest.waits:
            barrier()
        self.elements.merged = nest.merged
        targets = {
            result: self._target(result, root in read_later or nest.carried(root))
            for root in nest.roots
            for result in results_of(root)
        }
        return {result: target for result, target in targets.items() if target is not None}

    def _written(self, targets: Targets) -> None:
        """Register the results in memory for later nests."""
        for result, target in targets.items():
            root = result.root
            value = self.computed[root.generic, result.n] if root.generic else root.value
            if isinstance(value, Computed | Slice) and self.roots.of.get(value) is root:
                self.elements.buffers[value] = target

    def _target(self, result: Result, needed: bool) -> ir.Value | None:
        """Return the memory for a result; None if it is not written."""
        if stores := result.root.stores[result.n]:
            return self.outputs[stores[0]]
        if not needed and result.root.is_reduction:
            return None
        return self.buffers.add("shared", result.count, result.element)

    def _partial(self, result: Result) -> ir.Value:
        """Add a partial buffer, with this thread's part set to the neutral element."""
        identity = result.combiner.identity
        partial = self.buffers.add("partial", padded(result.count), identity.type)
        nothing = self.elements.scalar(identity)
        start = self._part(result)
        with bounded_loop(self.elements, 0, result.count) as q:
            self.elements.store(nothing, partial, arith.addi(start, q))
        return partial

    def _part(self, result: Result, thread: ir.Value | None = None) -> ir.Value:
        """Return the start of a thread's part of a partial result."""
        return arith.muli(thread or self.thread, self.elements.number(padded(result.count)))

    def _rows(self, nest: Nest, row: Row, partials: Targets) -> None:
        number = self.elements.number
        total = prod(nest.sizes[a] for a in nest.rows)
        if nest.block is not None and not partials:
            self._blocks(nest, row, total, *nest.block)
            return
        if nest.lanes:
            self._side_by_side(nest, row)
            return
        low, high = share(self.elements, total, self.thread, self.threads)
        if nest.across is not None and not partials:
            self._turned_tiles(nest, row, nest.across)
            return
        if nest.transposed and not partials:
            self._tiles(nest, row, low, high)
            return
        if not partials:
            self._each_row(row, low, high)
            return
        sums = {r: self.buffers.add("private", r.count, r.combiner.identity.type) for r in partials}
        rows = self.config.rows
        with bounded_loop(self.elements, low, high, rows) as first:
            for result, buffer in sums.items():
                with bounded_loop(self.elements, 0, result.count) as q:
                    self.elements.store(self.elements.scalar(result.combiner.identity), buffer, q)
            row.sums = {result: (buffer, number(0)) for result, buffer in sums.items()}
            self._each_block(nest, row, first, arith.minui(arith.addi(first, number(rows)), high))
            for result, buffer in sums.items():
                self._add(result, partials[result], buffer)

    def _blocks(self, nest: Nest, row: Row, rows: AnySize, axis: Axis, block: int) -> None:
        """Write all rows in blocks of an axis, which threads share."""
        elements, number, size = self.elements, self.elements.number, int(nest.sizes[axis])
        blocks = -(-size // block)
        low, high = share(elements, rows * blocks, self.thread, self.threads)
        with bounded_loop(elements, low, high) as position:
            at, piece = arith.divui(position, number(blocks)), arith.remui(position, number(blocks))
            first = arith.muli(piece, number(block))
            row.bounds = {axis: (first, arith.minui(arith.addi(first, number(block)), number(size)))}
            row.emit(row.place(at))

    def _side_by_side(self, nest: Nest, row: Row) -> None:
        """Write all rows in runs of neighbours, which threads share; a run's rows are the innermost loop."""
        elements, number, (*others, axis) = self.elements, self.elements.number, nest.rows
        size, run = number(nest.sizes[axis]), number(self.config.block)
        runs = arith.divui(arith.addi(size, number(self.config.block - 1)), run)
        total = arith.muli(number(prod(nest.sizes[a] for a in others)), runs)
        low, high = share(elements, total, self.thread, self.threads)
        with bounded_loop(elements, low, high) as position:
            outer = elements.spread({a: nest.sizes[a] for a in others}, arith.divui(position, runs))
            first = arith.muli(arith.remui(position, runs), run)
            with bounded_loop(elements, first, arith.minui(arith.addi(first, run), size)) as at:
                row.emit(Place({**outer, axis: at}))

    def _each_block(self, nest: Nest, row: Row, low: ir.Value, high: ir.Value) -> None:
        """Write rows in blocks of the nest's axis, if it has one."""
        if nest.block is None:
            self._each_row(row, low, high)
            return
        axis, block = nest.block
        number, size = self.elements.number, nest.sizes[axis]
        with bounded_loop(self.elements, 0, size, block) as at:
            row.bounds = {axis: (at, arith.minui(arith.addi(at, number(block)), number(size)))}
            self._each_row(row, low, high)

    def _each_row(self, row: Row, low: ir.Value, high: ir.Value) -> None:
        with bounded_loop(self.elements, low, high) as position:
            row.emit(row.place(position))

    def _tiles(self, nest: Nest, row: Row, low: ir.Value, high: ir.Value) -> None:
        """Write all rows in short tiles, so that a cache line read across rows serves several of them."""
        (axis,) = set(nest.order) - set(nest.rows)
        size, tile = nest.sizes[axis], self.config.tile
        with bounded_loop(self.elements, 0, size, tile) as first:
            row.bounds = {axis: (first, self._end(first, size))}
            self._each_row(row, low, high)

    def _turned_tiles(self, nest: Nest, row: Row, across: Axis) -> None:
        """Write all rows in short tiles, for which parts of arguments are transposed first.

        Threads share the tiles along the row axis ``across``.
        """
        elements, tile = self.elements, self.config.tile
        (axis,) = set(nest.order) - set(nest.rows)
        rows, size = nest.sizes[across], nest.sizes[axis]
        others = {a: nest.sizes[a] for a in nest.rows if a != across}
        tiles = arith.divui(
            arith.addi(elements.number(rows), elements.number(tile - 1)), elements.number(tile)
        )
        total = arith.muli(elements.number(prod(others.values())), tiles)
        low, high = share(elements, total, self.thread, self.threads)
        with bounded_loop(elements, low, high) as position:
            outer = elements.spread(others, arith.divui(position, tiles))
            top = arith.muli(arith.remui(position, tiles), elements.number(tile))
            bottom = arith.minui(arith.addi(top, elements.number(tile)), elements.number(rows))
            turns = [Turn(elements, self.buffers, v, index, outer, tile) for v, index in nest.turned]
            with bounded_loop(elements, 0, size, tile) as first:
                row.bounds = {axis: (first, self._end(first, size))}
                for turn in turns:
                    turn.emit((across, top, bottom), (axis, *row.bounds[axis]))
                with bounded_loop(elements, top, bottom) as at:
                    row.emit(Place({**outer, across: at}))

    def _end(self, first: ir.Value, size: AnySize) -> ir.Value:
        """Return the end of a tile that begins at ``first``."""
        number, tile = self.elements.number, self.config.tile
        end = arith.addi(first, number(tile))
        return end if isinstance(size, int) and size % tile == 0 else arith.minui(end, number(size))

    def _add(self, result: Result, partial: ir.Value, buffer: ir.Value) -> None:
        """Add a thread's sum over some rows to its part."""
        start = self._part(result)
        with bounded_loop(self.elements, 0, result.count) as q:
            self._combine_at(result.combiner, partial, arith.addi(start, q), buffer, q)

    def _split(self, nest: Nest, row: Row, partials: Targets) -> None:
        (axis,) = (a for a in nest.order if a not in nest.written_out)
        size = nest.sizes[axis] if self.size is None else self.size
        low, high = share(self.elements, size, self.thread, self.threads, multiple=LINE_BYTES)
        if not partials:
            row.bounds = {axis: (low, high)}
            row.emit(Place())
            return
        row.sums = {result: (partial, self._part(result)) for result, partial in partials.items()}
        block = self.config.block
        with bounded_loop(self.elements, low, high, block) as first:
            row.bounds = {axis: (first, arith.minui(arith.addi(first, self.elements.number(block)), high))}
            row.emit(Place())

    def _join(self, result: Result, partial: ir.Value, target: ir.Value) -> None:
        """Add all threads' parts to the initial value. Each thread handles a share of the elements."""
        elements = self.elements
        places = zip(result.index, result.shape, strict=True)
        plain = {axis: size for place, size in places if (axis := place.plain()) is not None}
        low, high = share(elements, result.count, self.thread, self.threads, multiple=16)
        with bounded_loop(elements, low, high) as q:
            place = Place(elements.spread(plain, q))
            merged, elements.merged = elements.merged, set()
            elements.store(elements.element(result.init, result.index, place), target, q)
            elements.merged = merged
        with bounded_loop(elements, 0, self.threads) as thread:
            start = self._part(result, thread)
            with bounded_loop(elements, low, high) as q:
                self._combine_at(result.combiner, target, q, partial, arith.addi(start, q))

    def _combine_at(
        self, combiner: Combiner, into: ir.Value, at: ir.Value, other: ir.Value, other_at: ir.Value
    ) -> None:
        type_ = combiner.identity.type
        old, new = (self.elements.load(b, p, type_) for b, p in ((into, at), (other, other_at)))
        self.elements.store(combine(combiner, old, new), into, at)
