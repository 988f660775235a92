"""A graph becomes a function of loops over memory:
``@name_body(thread, threads, sizes..., inputs..., outputs..., workspace...)``.
"""

from __future__ import annotations

from contextlib import ExitStack
from math import prod

from torch_mlir import ir
from torch_mlir.dialects import arith, func

from shardc.backends.body.axes import join_axes
from shardc.backends.body.combiner import Combiner, combine
from shardc.backends.body.contraction import Contraction
from shardc.backends.body.graph import Argument, Computed, Graph, Slice
from shardc.backends.body.linear import Axis, Index, Linear
from shardc.backends.body.nest import check_in_place, recursion
from shardc.backends.body.roots import Root, Roots, find_roots
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emit.buffers import Buffers, count_of, memory, padded
from shardc.backends.cpu.emit.element import Elements, Kept, Place
from shardc.backends.cpu.emit.emitted import Emitted
from shardc.backends.cpu.emit.loops import barrier, bounded_loop, share
from shardc.backends.cpu.emit.nests import Nest, find_nests, read_later
from shardc.backends.cpu.emit.row import Row, Targets
from shardc.backends.cpu.emit.stages import Loop, Stages, find_stages, work_of
from shardc.backends.cpu.emit.streams import LINE_BYTES, Stream, order_stores, streams_of
from shardc.backends.cpu.matmul.nest import Matmul
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.dialects.kern.size import hint
from shardc.passes.fuse.bodies.flat import SIZE

Range = tuple[Axis, ir.Value, ir.Value]
"""An axis from a place to before another."""


def emit(graph: Graph, module: ir.Module) -> Emitted:
    """Adds the function of ``graph`` to ``module``."""
    with recursion(1000 + 20 * len(graph.generics)):  # elements are asked for along chains of ops
        return _emit(graph, module)


def _emit(graph: Graph, module: ir.Module) -> Emitted:
    roots = find_roots(graph)
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
        index = ir.IndexType.get()
        given = {a.position: memory(count_of(a.shape), a.element) for a in reversed(graph.arguments)}
        inputs = [given[n] for n in range(graph.inputs)]
        new = [n for n in range(len(graph.results)) if n not in graph.in_place]
        outputs = [memory(count_of(v.shape), v.element) for v in map(graph.results.__getitem__, new)]
        sizes = [index] * (1 if graph.flat else len(graph.symbols))
        with ir.InsertionPoint(module.body):
            self.function = func.FuncOp(f"{graph.name}_body", ([index, index, *sizes, *inputs, *outputs], []))
        self.block = self.function.add_entry_block()
        self.buffers = Buffers(self.block)
        self.thread, self.threads, *arguments = self.block.arguments
        self.size = arguments[0] if graph.flat else None
        symbols = dict(zip(graph.symbols, arguments, strict=False))
        arguments = arguments[len(sizes) :]
        self.outputs = {number: arguments[at] for number, at in graph.in_place.items()}
        self.outputs.update(zip(new, arguments[len(inputs) :], strict=True))
        self.elements = Elements(
            self.block, {a: arguments[a.position] for a in graph.arguments}, symbols, graph.sizes
        )
        self.computed = {(v.generic, v.number): v for v in graph.computed}

    def finish(self) -> Emitted:
        self.buffers.finish(self.function)
        work = work_of(self.roots)
        graph, per_thread = self.graph, self.config.work_per_thread
        if graph.flat and self.buffers.kinds:
            raise KernelNotSupported(what="a flat kernel that keeps values in memory")
        return Emitted(
            graph.name,
            graph.inputs,
            len(self.outputs) - len(graph.in_place),
            max(1, hint(work) // per_thread),
            self.buffers,
            max(1, per_thread * SIZE // work) if graph.flat else 0,
            len(graph.symbols),
            work,
            per_thread,
        )

    def matmul(self, nest: Nest, contraction: Contraction, read_later: set[Root]) -> None:
        """The loops of a nest that holds a contraction."""
        with ir.InsertionPoint(self.block):
            targets = self._begin(nest, read_later)
            value = self.computed[contraction.root.generic, 0]
            Matmul(
                nest,
                contraction,
                self.roots,
                value,
                self.config,
                self.elements,
                self.buffers,
                targets,
                self.thread,
                self.threads,
            ).emit()
            self._written(targets)

    def nest(self, nest: Nest, stages: Stages, read_later: set[Root]) -> None:
        """The loops of one nest, and the joining of what the threads summed up."""
        with ir.InsertionPoint(self.block):
            targets = self._begin(nest, read_later)
            partials = {key: self._partial(*key) for key in targets if nest.carried(key[0])}
            row = Row(nest, stages, self.elements, self.buffers, targets, self.computed, self.config)
            row.streams = self._streams(nest, stages, read_later, targets)
            (self._split if nest.split else self._rows)(nest, row, partials)
            if row.streams:
                order_stores()
            self.elements.kept.clear()
            if partials:
                barrier()
            for (root, n), partial in partials.items():
                self._join(root, n, partial, targets[root, n])
            self._written(targets)

    def _streams(
        self, nest: Nest, stages: Stages, read_later: set[Root], targets: Targets
    ) -> dict[Loop, list[Stream]]:
        """What the loops of a nest write past the caches."""
        config = self.config
        found: dict[Loop, list[Stream]] = {}
        for loop, members in streams_of(nest, stages, self.graph, read_later, config.streamed_bytes).items():
            axis, *parts = loop.axes
            sizes = {part: nest.sizes[part] for part in parts}
            found[loop] = [Stream(r, axis, sizes, config.piece, targets[r, 0], self.buffers) for r in members]
        return found

    def _begin(self, nest: Nest, read_later: set[Root]) -> Targets:
        """The memory of each result of a nest."""
        if nest.waits:
            barrier()
        self.elements.merged = nest.merged
        return {
            (root, n): self._target(root, n, root in read_later or nest.carried(root))
            for root in nest.roots
            for n in range(root.result_count())
        }

    def _written(self, targets: Targets) -> None:
        """What nests after this one find in memory."""
        for (root, n), target in targets.items():
            value = self.computed[root.generic, n] if root.generic else root.value
            if (
                target is not None
                and isinstance(value, Computed | Slice)
                and self.roots.of.get(value) is root
            ):
                self.elements.buffers[value] = target

    def _target(self, root: Root, n: int, needed: bool) -> ir.Value | None:
        """The memory that result ``n`` is written to, if it is."""
        if root.stores[n]:
            return self.outputs[root.stores[n][0]]
        if not needed and root.is_reduction:
            return None
        element = root.generic.inits[n].element if root.generic else root.value.element
        return self.buffers.add("shared", count_of(root.result_shape(n)), element)

    def _partial(self, root: Root, n: int) -> ir.Value:
        """A part for each thread, in which this thread's holds nothing yet."""
        count, combiner = count_of(root.result_shape(n)), root.combiners[n]
        partial = self.buffers.add("partial", padded(count), combiner.identity.type)
        nothing = self.elements.scalar(combiner.identity)
        start = self._part(count)
        with bounded_loop(self.elements, 0, count) as (q, _):
            self.elements.store(nothing, partial, arith.addi(start, q))
        return partial

    def _part(self, count: int, thread: ir.Value | None = None) -> ir.Value:
        """Where a thread's part of a partial result of ``count`` elements begins."""
        return arith.muli(self.thread if thread is None else thread, self.elements.number(padded(count)))

    def _rows(self, nest: Nest, row: Row, partials: dict) -> None:
        number = self.elements.number
        total = prod(nest.sizes[a] for a in nest.rows)
        low, high = share(self.elements, total, self.thread, self.threads)
        if nest.transposed and not partials:
            self._tiles(nest, row, low, high)
            return
        if not partials:
            with bounded_loop(self.elements, low, high) as (p, _):
                row.emit(row.place(p))
            return
        sums = {
            key: self.buffers.add(
                "private", count_of(key[0].result_shape(key[1])), key[0].combiners[key[1]].identity.type
            )
            for key in partials
        }
        rows = self.config.rows
        with bounded_loop(self.elements, low, high, rows) as (first, _):
            for (root, n), buffer in sums.items():
                with bounded_loop(self.elements, 0, count_of(root.result_shape(n))) as (q, _):
                    self.elements.store(self.elements.scalar(root.combiners[n].identity), buffer, q)
            row.sums = {key: (buffer, number(0)) for key, buffer in sums.items()}
            end = arith.minui(arith.addi(first, number(rows)), high)
            with bounded_loop(self.elements, first, end) as (p, _):
                row.emit(row.place(p))
            for (root, n), buffer in sums.items():
                self._add(root, n, partials[root, n], buffer)

    def _tiles(self, nest: Nest, row: Row, low: ir.Value, high: ir.Value) -> None:
        """All rows in short pieces, so that a cache line read across the rows serves as many of them as it
        holds.
        """
        (axis,) = set(nest.order) - set(nest.rows)
        size, tile = nest.sizes[axis], self.config.tile
        with ExitStack() as loops:
            if nest.turned:
                start, _ = loops.enter_context(bounded_loop(self.elements, low, high, tile))
                low, high = start, arith.minui(arith.addi(start, self.elements.number(tile)), high)
            first, _ = loops.enter_context(bounded_loop(self.elements, 0, size, tile))
            end = arith.addi(first, self.elements.number(tile))
            whole = isinstance(size, int) and size % tile == 0
            row.bounds = {axis: (first, end if whole else arith.minui(end, self.elements.number(size)))}
            for value, index in nest.turned:
                self._turn(value, index, (nest.rows[0], low, high), (axis, *row.bounds[axis]))
            with bounded_loop(self.elements, low, high) as (p, _):
                row.emit(row.place(p))

    def _turn(self, value: Argument, index: Index, rows: Range, columns: Range) -> None:
        """Copies a piece of an argument into a buffer of this thread, where it is contiguous
        along the row.
        """
        tile, elements = self.config.tile, self.elements
        (row, top, bottom), (column, left, right) = rows, columns
        offset = Linear.axis(row) * tile + Linear.axis(column)
        start = elements.position(offset, Place({row: top, column: left}))
        kept = Kept(self.buffers.add("private", tile * tile, value.element), offset, start)
        with bounded_loop(elements, left, right) as (q, _), bounded_loop(elements, top, bottom) as (p, _):
            place = Place({row: p, column: q})
            at = arith.subi(elements.position(offset, place), start)
            elements.kept.pop((value, index), None)
            elements.store(elements.element(value, index, place), kept.buffer, at)
        elements.kept[value, index] = kept

    def _add(self, root: Root, n: int, partial: ir.Value, buffer: ir.Value) -> None:
        count = count_of(root.result_shape(n))
        start = self._part(count)
        with bounded_loop(self.elements, 0, count) as (q, _):
            self._combine_at(root.combiners[n], partial, arith.addi(start, q), buffer, q)

    def _split(self, nest: Nest, row: Row, partials: dict) -> None:
        (axis,) = (a for a in nest.order if a not in nest.written_out)
        size = nest.sizes[axis] if self.size is None else self.size
        low, high = share(self.elements, size, self.thread, self.threads, multiple=LINE_BYTES)
        if not partials:
            row.bounds = {axis: (low, high)}
            row.emit(Place())
            return
        row.sums = {
            (root, n): (partial, self._part(count_of(root.result_shape(n))))
            for (root, n), partial in partials.items()
        }
        block = self.config.block
        with bounded_loop(self.elements, low, high, block) as (first, _):
            row.bounds = {axis: (first, arith.minui(arith.addi(first, self.elements.number(block)), high))}
            row.emit(Place())

    def _join(self, root: Root, n: int, partial: ir.Value, target: ir.Value) -> None:
        """Adds the threads' parts to what the sum starts from; each thread takes a share of the elements."""
        shape, index = root.result_shape(n), root.result_index(n)
        count = count_of(shape)
        low, high = share(self.elements, count, self.thread, self.threads, multiple=16)
        with bounded_loop(self.elements, low, high) as (q, _):
            place, rest = Place(), q
            plain = [
                (p.plain(), self.elements.number(n))
                for p, n in zip(index, shape, strict=True)
                if p.plain() is not None
            ]
            for at, (axis, size) in reversed(list(enumerate(plain))):
                place.axes[axis] = arith.remui(rest, size) if at else rest
                rest = arith.divui(rest, size) if at else rest
            merged, self.elements.merged = self.elements.merged, set()
            self.elements.store(self.elements.element(root.generic.inits[n], index, place), target, q)
            self.elements.merged = merged
        with bounded_loop(self.elements, 0, self.threads) as (thread, _):
            start = self._part(count, thread)
            with bounded_loop(self.elements, low, high) as (q, _):
                self._combine_at(root.combiners[n], target, q, partial, arith.addi(start, q))

    def _combine_at(
        self, combiner: Combiner, into: ir.Value, at: ir.Value, other: ir.Value, other_at: ir.Value
    ) -> None:
        old, new = (
            self.elements.load(b, p, combiner.identity.type) for b, p in ((into, at), (other, other_at))
        )
        self.elements.store(combine(combiner, old, new), into, at)
