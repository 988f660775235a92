"""``kern.scan`` as loops over rows, a vector at a time.

The lanes of a vector are combined with those 1, 2, 4, ... before them (Hillis and Steele, Data parallel
algorithms, 1986), then with the value of all vectors before. Carried sums and products of floats are in f64.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod

from torch_mlir import ir
from torch_mlir.dialects import arith, scf, vector

from shardc.backends.body.handlers import handles
from shardc.backends.body.structured import Structured
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emit.buffers import Buffers, Emitted, memory_of, width_bytes
from shardc.backends.cpu.emit.element import Elements
from shardc.backends.cpu.emit.loops import bounded_loop, carrying_loop, share
from shardc.backends.cpu.host import vector_bytes
from shardc.dialects.kern.scan import ScanOp, scan_of


@handles(ScanOp)
def emit_scan(body: Structured, module: ir.Module) -> Emitted:
    """Add the loops of a ``kern.scan`` to ``module``."""
    return _Scan(body, module).emit()


Combine = Callable[[ir.Value, ir.Value], ir.Value]
_FLOATS: dict[str, tuple[Combine, float]] = {
    "sum": (arith.addf, 0.0),
    "product": (arith.mulf, 1.0),
    "max": (arith.maximumf, -inf),
    "min": (arith.minimumf, inf),
}
_INTEGERS: dict[str, tuple[Combine, Callable[[int], int]]] = {
    "sum": (arith.addi, lambda bits: 0),
    "product": (arith.muli, lambda bits: 1),
    "max": (arith.maxsi, lambda bits: -(1 << bits - 1)),
    "min": (arith.minsi, lambda bits: (1 << bits - 1) - 1),
}


class _Scan:
    """Function ``@name_body``. ``wide``: type of carried values; lanes of a product have it, too.

    Eager's sums and products of floats are in f64, and products of f32 may leave its range before they come
    back.
    """

    def __init__(self, body: Structured, module: ir.Module) -> None:
        self.body, self.spec = body, scan_of(body.op)
        memory = memory_of(self.spec.type, module.context)
        self.buffers = Buffers(body.name, 0, [memory, memory], module)
        *_, self.x, self.out = self.buffers.block.arguments
        self.elements = Elements(self.buffers.block, {})
        self.element, kind = memory.element_type, self.spec.kind
        self.wide, self.neutral = self.element, 0.0
        if isinstance(self.element, ir.IntegerType):
            self.combined, neutral = _INTEGERS[kind]
            self.neutral = neutral(self.element.width)
        else:
            self.combined, self.neutral = _FLOATS[kind]
            self.wide = ir.F64Type.get(module.context) if kind in ("sum", "product") else self.element
        self.lane = self.wide if kind == "product" else self.element
        self.lanes = vector_bytes() // width_bytes(self.element)

    def emit(self) -> Emitted:
        *outer, steps = self.spec.type.shape
        rows, buffers, e = prod(outer), self.buffers, self.elements
        with ir.InsertionPoint(buffers.block):
            low, high = share(e, rows, buffers.thread, buffers.threads)
            with bounded_loop(e, low, high) as row:
                self._row(arith.muli(row, e.number(steps)), steps)
        buffers.finish()
        work = 4 * rows * steps
        threads = max(1, min(rows, work // Config.of(self.body.config).work_per_thread))
        return Emitted(self.body.name, 1, 1, threads, buffers)

    def _row(self, start: ir.Value, steps: int) -> None:
        """Scan a row: whole vectors, then lanes of one more."""
        number, whole = self.elements.number, steps // self.lanes
        first = arith.constant(self.wide, self.neutral)
        with carrying_loop(self.elements, 0, whole, [first]) as (at, loop):
            if self.spec.reverse:
                at = arith.subi(number(whole - 1), at)
            place = arith.addi(
                arith.addi(start, number(self._first(steps))), arith.muli(at, number(self.lanes))
            )
            scf.YieldOp([self._vector(place, loop.inner_iter_args[0])])
        rest = steps % self.lanes
        if rest:
            at = 0 if self.spec.reverse else steps - rest
            self._vector(arith.addi(start, number(at)), loop.results[0], rest)

    def _first(self, steps: int) -> int:
        """Return where whole vectors begin in a row."""
        return steps % self.lanes if self.spec.reverse else 0

    def _vector(self, place: ir.Value, carried: ir.Value, count: int | None = None) -> ir.Value:
        """Scan a vector in memory after all before it, whose value is ``carried``; return the new value.

        ``count``: number of lanes, the first ones; None for all.
        """
        lanes, reverse = self.lanes, self.spec.reverse
        read, lane = (ir.VectorType.get([lanes], t) for t in (self.element, self.lane))
        flags = ir.VectorType.get([lanes], ir.IntegerType.get_signless(1))
        is_lane = None if count is None else vector.constant_mask(flags, [count])
        if is_lane is None:
            loaded = vector.load(read, self.x, [place])
        else:
            nothing = self._spread(arith.constant(self.element, self.neutral))
            loaded = vector.maskedload(read, self.x, [place], is_lane, nothing)
        v = self._to(loaded, lane)
        neutral = self._spread(arith.constant(self.lane, self.neutral))
        step = 1
        while step < (count or lanes):
            at = [i + step if reverse else i - step for i in range(lanes)]
            moved = vector.shuffle(neutral, v, [lanes + i if 0 <= i < lanes else 0 for i in at])
            v, step = self.combined(v, moved), 2 * step
        made = self._to(self.combined(v, self._spread(self._to(carried, self.lane))), read)
        if is_lane is None:
            vector.store(made, self.out, [place])
        else:
            vector.maskedstore(self.out, [place], is_lane, made)
        last = vector.extract(v, [], [0 if reverse else lanes - 1])
        return self.combined(carried, self._to(last, self.wide))

    def _spread(self, value: ir.Value) -> ir.Value:
        return vector.broadcast(ir.VectorType.get([self.lanes], value.type), value)

    def _to(self, value: ir.Value, type_: ir.Type) -> ir.Value:
        """Convert a float, or a vector of floats, to f32 or f64."""
        old, new = (t.element_type if isinstance(t, ir.VectorType) else t for t in (value.type, type_))
        if old == new:
            return value
        return arith.extf(type_, value) if new == self.wide else arith.truncf(type_, value)
