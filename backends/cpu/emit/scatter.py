"""``kern.scatter_add`` as loops over memory.

First the threads initialise out with zeros, or with ``init`` if out has other memory. Then each thread takes
a part of the columns, or of the dims before rows if rows are short, and adds updates to their rows in order,
so no atomics are needed, and rows without updates are not read again. 16-bit rows are summed in f32, one row
at a time: one thread chains the positions with the same index, and the threads share chains and columns.
Updates that loops of the body compute are computed where they are added.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import torch
from torch_mlir import ir
from torch_mlir.dialects import arith, memref, scf

from shardc.backends.body.graph import Value
from shardc.backends.body.handlers import handles
from shardc.backends.body.nest import recursion
from shardc.backends.body.structured import Structured, scatter_in_place
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emit.buffers import Buffers, Emitted, memory, memory_of, width_bytes
from shardc.backends.cpu.emit.element import Elements
from shardc.backends.cpu.emit.loops import barrier, bounded_loop, carrying_loop, share, when
from shardc.backends.cpu.emit.streams import LINE_BYTES
from shardc.backends.cpu.emit.updates import Updates
from shardc.dialects.kern.scatter_add import ScatterAddOp, scatter_add_of
from shardc.dialects.kern.size import AnySize, hint
from shardc.runtime.kernels.kernel_call import FINE

FEW_ROWS = 64
"""Number of rows below which rows are divided into pieces as short as a cache line."""


@handles(ScatterAddOp)
def emit_scatter(body: Structured, module: ir.Module) -> Emitted:
    """Add the loops of a ``kern.scatter_add`` to ``module``. Raises KernelNotSupported."""
    with recursion(1000 + 20 * len(body.graph.generics)):  # elements are computed recursively along ops
        return _Scatter(body, module).emit()


class _Scatter:
    """Function ``@name_body``. ``wrong``: a result, if needed. ``in_place``: out is in init's memory."""

    def __init__(self, body: Structured, module: ir.Module) -> None:
        self.body, self.config = body, Config.of(body.config)
        spec = self.spec = scatter_add_of(body.op, body.shapes)
        graph, in_place, tells = body.graph, scatter_in_place(body), len(body.results) > 1
        self.in_place, self.i64 = in_place, ir.IntegerType.get_signless(64, module.context)
        given = {a.position: memory(prod(a.shape), a.element) for a in reversed(graph.arguments)}
        types = [given[n] for n in range(graph.inputs)]
        types += [memory_of(spec.out, module.context)] * (not in_place) + [memory(1, self.i64)] * tells
        self.buffers = Buffers(body.name, len(body.symbols), types, module)
        self.block = self.buffers.block
        self.thread, self.threads, *arguments = self.block.arguments
        symbols = dict(zip(body.symbols, arguments, strict=False))
        arguments = arguments[len(body.symbols) :]
        in_memory: dict[Value, ir.Value] = {a: arguments[a.position] for a in graph.arguments}
        self.elements = Elements(self.block, in_memory, symbols, graph.sizes)
        index, updates, *init = graph.results
        self.index, self.init = in_memory[index], in_memory[init[0]] if init else None
        self.updates = Updates(updates, spec, graph, self.elements)
        rest, self.inputs = arguments[graph.inputs :], graph.inputs
        self.out = rest[0] if self.init is None or not in_place else self.init
        self.wrong = rest[-1] if tells else None
        self.element = ir.MemRefType(self.out.type).element_type
        self.is_wide = spec.out.dtype in (torch.float16, torch.bfloat16)
        self.sum_type = ir.F32Type.get() if self.is_wide else self.element
        if self.is_wide:
            self.last = self.buffers.add("shared", spec.rows, self.i64)
            self.next = self.buffers.add("shared", spec.count + 1, self.i64)
            self.chains = self.buffers.add("shared", spec.count + 1, self.i64)
            self.sums = self.buffers.add("private", spec.inner, self.sum_type)

    def emit(self) -> Emitted:
        spec = self.spec
        with ir.InsertionPoint(self.block):
            if not self.in_place:
                self._fill()
            with when(arith.cmpi(arith.CmpIPredicate.eq, self.thread, self.elements.number(0))):
                self._check()
                if self.is_wide:
                    self._chain()
            barrier()
            if self.is_wide:
                self._add_chains()
            else:
                self._add_in_order()
        self.buffers.finish()
        added, written = 2 * prod(spec.updates.shape), 0 if self.in_place else prod(spec.out.shape)
        work, per_thread = added + written, self.config.work_per_thread
        new, name = (not self.in_place) + (self.wrong is not None), self.body.name
        threads, sizes = max(1, hint(work) // per_thread), len(self.body.symbols)
        return Emitted(name, self.inputs, new, threads, self.buffers, 0, sizes, work, per_thread)

    def _fill(self) -> None:
        """Initialise out."""
        zero = arith.constant(self.element, 0 if isinstance(self.element, ir.IntegerType) else 0.0)
        size = prod(self.spec.out.shape)
        low, high = share(self.elements, size, self.thread, self.threads, multiple=LINE_BYTES)
        with bounded_loop(self.elements, low, high) as at:
            memref.store(zero if self.init is None else memref.load(self.init, [at]), self.out, [at])

    def _check(self) -> None:
        """Compute the largest wrong index, if that result is needed."""
        if self.wrong is None:
            return
        fine = arith.constant(self.i64, FINE)
        with carrying_loop(self.elements, 0, self.spec.count, [fine]) as (position, loop):
            index, _, counted, inside = self._row(position)
            is_wrong = arith.andi(counted, arith.xori(inside, arith.constant(inside.type, 1)))
            scf.YieldOp([arith.maxsi(loop.inner_iter_args[0], arith.select(is_wrong, index, fine))])
        memref.store(loop.results[0], self.wrong, [self.elements.number(0)])

    def _row(self, position: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
        """Return the index at a position as i64, its row, whether it counts, and whether the row exists."""
        spec, index = self.spec, memref.load(self.index, [position])
        index = index if index.type == self.i64 else arith.extsi(self.i64, index)
        counted = arith.constant(ir.IntegerType.get_signless(1), 1)
        if spec.ignored is not None:
            counted = arith.cmpi(arith.CmpIPredicate.ne, index, arith.constant(self.i64, spec.ignored))
        rows, row = arith.index_cast(self.i64, self.elements.number(spec.rows)), index
        if spec.wraps:
            below = arith.cmpi(arith.CmpIPredicate.slt, index, arith.constant(self.i64, 0))
            row = arith.select(below, arith.addi(index, rows), index)
        inside = arith.cmpi(arith.CmpIPredicate.ult, row, rows)
        return index, _position(row), counted, inside

    @contextmanager
    def _used(self, position: ir.Value) -> Iterator[ir.Value]:
        """Build a branch for a position whose update is added to a row; yield the row."""
        _, row, counted, inside = self._row(position)
        with when(arith.andi(counted, inside)):
            yield row

    def _start(self, size: AnySize, outer: ir.Value, at: ir.Value) -> ir.Value:
        """Return the start of row ``at``, after ``outer`` groups of ``size`` rows."""
        number = self.elements.number
        return arith.muli(arith.addi(arith.muli(outer, number(size)), at), number(self.spec.inner))

    def _widened(self, value: ir.Value) -> ir.Value:
        return arith.extf(self.sum_type, value) if self.is_wide else value

    def _add_in_order(self) -> None:
        """Add each update to its row in memory. A thread handles its own columns.

        Where a row has fewer cache lines than there are groups of rows, it handles its own groups.
        """
        spec, line = self.spec, LINE_BYTES // width_bytes(self.element)
        first, end, low, high = 0, spec.outer, 0, self.updates.shared(line)[0]
        if hint(spec.outer) > hint(spec.inner) // line:
            first, end = share(self.elements, spec.outer, self.thread, self.threads)
        else:
            size, multiple = self.updates.shared(line)
            low, high = share(self.elements, size, self.thread, self.threads, multiple=multiple)
        outer_loop = bounded_loop(self.elements, first, end)
        with outer_loop as outer, bounded_loop(self.elements, 0, spec.count) as at, self._used(at) as row:
            into = self._start(spec.rows, outer, row)

            def add(column: ir.Value, update: ir.Value) -> None:
                place = arith.addi(into, column)
                memref.store(_plus(memref.load(self.out, [place]), update), self.out, [place])

            self.updates.each(outer, at, low, high, add)

    # Sums of 16 bits

    def _chain(self) -> None:
        """Build the chains of positions with the same index.

        ``chains``: first position of each chain, and at its end the number of chains. ``next``: for a
        position, the next one in its chain, or -1. ``last``: for a row, its last position so far.
        """
        number, none, first = self.elements.number, arith.constant(self.i64, -1), arith.constant(self.i64, 0)
        count = number(self.spec.count)
        with bounded_loop(self.elements, 0, count) as position, self._used(position) as row:
            memref.store(none, self.last, [row])
        with carrying_loop(self.elements, 0, count, [number(0)]) as (position, loop):
            (found,) = loop.inner_iter_args
            _, row, counted, inside = self._row(position)
            branch = scf.IfOp(arith.andi(counted, inside), [found.type], has_else=True)
            assert branch.else_block is not None
            with ir.InsertionPoint(branch.then_block):
                here, last = arith.index_cast(self.i64, position), memref.load(self.last, [row])
                is_new = arith.cmpi(arith.CmpIPredicate.slt, last, first)
                memref.store(here, self.chains, [found])
                before = arith.select(is_new, count, _position(arith.maxsi(last, first)))
                memref.store(here, self.next, [before])
                memref.store(none, self.next, [position])
                memref.store(here, self.last, [row])
                scf.YieldOp([arith.select(is_new, arith.addi(found, number(1)), found)])
            with ir.InsertionPoint(branch.else_block):
                scf.YieldOp([found])
            scf.YieldOp([branch.results[0]])
        memref.store(arith.index_cast(self.i64, loop.results[0]), self.chains, [count])

    def _add_chains(self) -> None:
        """Distribute pieces of the chains' rows round-robin among threads."""
        number, inner, line = self.elements.number, self.elements.number(self.spec.inner), LINE_BYTES // 2
        found = _position(memref.load(self.chains, [number(self.spec.count)]))
        shortest = self.config.columns if hint(self.spec.rows) >= FEW_ROWS else line
        pieces = arith.minui(self.threads, arith.ceildivui(inner, number(shortest)))
        piece = arith.muli(arith.ceildivui(inner, arith.muli(pieces, number(line))), number(line))
        total = arith.muli(arith.muli(found, pieces), number(self.spec.outer))
        with bounded_loop(self.elements, self.thread, total, self.threads) as unit:
            low, rest = arith.muli(arith.remui(unit, pieces), piece), arith.divui(unit, pieces)
            chain, outer = arith.remui(rest, found), arith.divui(rest, found)
            start, high = memref.load(self.chains, [chain]), arith.minui(inner, arith.addi(low, piece))
            self._add_chain(outer, start, low, high)

    def _add_chain(self, outer: ir.Value, first: ir.Value, low: ir.Value, high: ir.Value) -> None:
        """Sum columns ``low`` to before ``high`` of a chain's row, from position ``first`` on."""
        spec = self.spec
        _, row, _, _ = self._row(_position(first))
        into = self._start(spec.rows, outer, row)
        with bounded_loop(self.elements, low, high) as column:
            old = memref.load(self.out, [arith.addi(into, column)])
            memref.store(self._widened(old), self.sums, [column])

        def add(column: ir.Value, update: ir.Value) -> None:
            total = _plus(memref.load(self.sums, [column]), self._widened(update))
            memref.store(total, self.sums, [column])

        with self._positions(first) as position:
            self.updates.each(outer, position, low, high, add)
        with bounded_loop(self.elements, low, high) as column:
            total = arith.truncf(self.element, memref.load(self.sums, [column]))
            memref.store(total, self.out, [arith.addi(into, column)])

    @contextmanager
    def _positions(self, first: ir.Value) -> Iterator[ir.Value]:
        """Build a loop over the positions of a chain, from ``first`` on."""
        loop = scf.WhileOp([first.type], [first])
        before, after = (region.blocks.append(first.type) for region in (loop.before, loop.after))
        with ir.InsertionPoint(before):
            at = before.arguments[0]
            scf.ConditionOp(arith.cmpi(arith.CmpIPredicate.sge, at, arith.constant(at.type, 0)), [at])
        with ir.InsertionPoint(after):
            position = _position(after.arguments[0])
            yield position
            scf.YieldOp([memref.load(self.next, [position])])


def _position(value: ir.Value) -> ir.Value:
    return arith.index_cast(ir.IndexType.get(), value)


def _plus(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.addi(a, b) if isinstance(a.type, ir.IntegerType) else arith.addf(a, b)
