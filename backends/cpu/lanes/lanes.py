"""Builders of arithmetic on f32 vectors and on indices, at the insertion point, and of matmuls in vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch_mlir import ir
from torch_mlir.dialects import arith, memref, scf, vector

from shardc.backends.cpu.emit.element import Count, Elements
from shardc.backends.cpu.emit.loops import bounded_loop, carrying_loop
from shardc.dialects.kern.size import AnySize, Symbol


@dataclass(eq=False)
class Lanes:
    """Builder for vectors of ``width`` f32 lanes.

    Positions are in elements. ``symbols``: sizes' arguments.
    """

    entry: ir.Block
    width: int
    symbols: Mapping[Symbol, ir.Value] = field(default_factory=dict)
    elements: Elements = field(init=False)

    def __post_init__(self) -> None:
        self.elements = Elements(self.entry, {}, self.symbols)
        self.float = ir.F32Type.get()
        self.type = self.of(self.float)

    def index(self, value: Count) -> ir.Value:
        return self.elements.number(value)

    def times(self, a: Count, b: Count) -> Count:
        """Multiply; the result is a number or size if both operands are."""
        if isinstance(a, ir.Value) or isinstance(b, ir.Value):
            return arith.muli(self.index(a), self.index(b))
        return a * b

    def sum(self, *terms: Count | tuple[Count, Count]) -> ir.Value:
        """Return the sum of terms. A term may be a pair of an index and a factor."""
        total: ir.Value | None = None
        constant: AnySize = 0
        for term in terms:
            value, factor = term if isinstance(term, tuple) else (term, 1)
            part = 0 if factor == 0 else value if factor == 1 else self.times(value, factor)
            if isinstance(part, ir.Value):
                total = part if total is None else arith.addi(total, part)
            else:
                constant = constant + part
        if total is None:
            return self.index(constant)
        return total if constant == 0 else arith.addi(total, self.index(constant))

    def splat(self, value: float | ir.Value) -> ir.Value:
        if isinstance(value, ir.Value):
            return vector.broadcast(self.type, value)
        scalar = ir.FloatAttr.get(self.float, value)
        return arith.constant(self.type, ir.DenseElementsAttr.get_splat(self.type, scalar))

    def of(self, element: ir.Type) -> ir.Type:
        return ir.VectorType.get([self.width], element)

    def load(self, buffer: ir.Value, position: ir.Value) -> ir.Value:
        """Load a vector from ``position`` on, in f32."""
        element = ir.MemRefType(buffer.type).element_type
        found = vector.load(self.of(element), buffer, [position])
        return found if element == self.float else arith.extf(self.type, found)

    def store(self, value: ir.Value, buffer: ir.Value, position: ir.Value) -> None:
        """Store an f32 vector, rounded to the buffer's type."""
        element = ir.MemRefType(buffer.type).element_type
        rounded = value if element == self.float else arith.truncf(self.of(element), value)
        vector.store(rounded, buffer, [position])

    def scalar(self, buffer: ir.Value, position: ir.Value) -> ir.Value:
        """Load an element in f32."""
        found = memref.load(buffer, [position])
        return found if found.type == self.float else arith.extf(self.float, found)

    def put(self, value: ir.Value, buffer: ir.Value, position: ir.Value) -> None:
        """Store an f32 element, rounded to the buffer's type."""
        element = ir.MemRefType(buffer.type).element_type
        memref.store(value if element == self.float else arith.truncf(element, value), buffer, [position])

    def maximum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return the larger one; b if a is NaN."""
        return arith.select(arith.cmpf(arith.CmpFPredicate.OGT, a, b), a, b)

    def instead(self, value: ir.Value, bad: float, good: float) -> ir.Value:
        """Return ``value`` with ``good`` in lanes that equal ``bad``."""
        is_bad = arith.cmpf(arith.CmpFPredicate.OEQ, value, self.splat(bad))
        return arith.select(is_bad, self.splat(good), value)

    def where(self, order: str, number: ir.Value, value: ir.Value, others: float) -> ir.Value:
        """Return ``value`` in the lanes whose number is ``slt`` or ``sge`` to an index, else ``others``."""
        i32 = ir.IntegerType.get_signless(32)
        lanes = self.of(i32)
        numbers = arith.constant(lanes, ir.Attribute.parse(f"dense<{list(range(self.width))}> : {lanes}"))
        bound = vector.broadcast(lanes, arith.index_cast(i32, number))
        chosen = arith.cmpi(getattr(arith.CmpIPredicate, order), numbers, bound)
        return arith.select(chosen, value, self.splat(others))


@dataclass(frozen=True)
class Matrix:
    """Matrix in a buffer: (row, column) is at ``start + row * row_stride + column * column_stride``."""

    buffer: ir.Value
    start: ir.Value
    row_stride: AnySize
    column_stride: AnySize = 1

    @property
    def across(self) -> Matrix:
        """Transposed view of the same elements."""
        return Matrix(self.buffer, self.start, self.column_stride, self.row_stride)

    def at(self, lanes: Lanes, row: Count, column: Count) -> ir.Value:
        return lanes.sum(self.start, (row, self.row_stride), (column, self.column_stride))


Initial = Callable[[ir.Value, int], ir.Value]
"""Function (position in the result, number of the vector in its row) -> initial value of a sum."""


@dataclass(frozen=True)
class Product:
    """Matmul ``into[i, :] = initial + sum over k < depth of left[i, k] * right[k, :]`` for i < ``rows``.

    ``left`` is read in place, one element at a time, with any strides. Rows of ``right`` and ``into`` are
    ``vectors`` whole vectors. A partial last tile computes the last row several times.
    """

    left: Matrix
    right: Matrix
    into: Matrix
    rows: Count
    depth: Count
    vectors: int

    def emit(self, lanes: Lanes, registers: int, initial: Initial) -> None:
        done = 0
        for count in chunks(self.vectors, registers):
            self._columns(lanes, range(done, done + count), tile_rows(count, registers), initial)
            done += count

    def _columns(self, lanes: Lanes, columns: range, tile: int, initial: Initial) -> None:
        rows, count = lanes.index(self.rows), self.rows if isinstance(self.rows, int) else None
        tiles = arith.divui(rows, lanes.index(tile)) if count is None else lanes.index(count // tile)
        whole = arith.muli(tiles, lanes.index(tile))
        with bounded_loop(lanes.elements, 0, whole, tile) as first:
            self._tile(lanes, columns, [lanes.sum(first, r) for r in range(tile)], initial)
        if count is not None and count % tile == 0:
            return
        last = lanes.sum(rows, -1)
        with bounded_loop(lanes.elements, whole, rows, tile) as first:
            self._tile(lanes, columns, [arith.minui(lanes.sum(first, r), last) for r in range(tile)], initial)

    def _tile(self, lanes: Lanes, columns: range, rows: Sequence[ir.Value], initial: Initial) -> None:
        positions = [[self.into.at(lanes, row, column * lanes.width) for column in columns] for row in rows]
        sums = [initial(p, column) for row in positions for p, column in zip(row, columns, strict=True)]
        starts = [self.left.at(lanes, row, 0) for row in rows]
        with carrying_loop(lanes.elements, 0, self.depth, sums) as (k, loop):
            held = list(loop.inner_iter_args)
            right = [lanes.load(self.right.buffer, self.right.at(lanes, k, c * lanes.width)) for c in columns]
            made = []
            for r, start in enumerate(starts):
                at = lanes.sum(start, (k, self.left.column_stride))
                factor = lanes.splat(lanes.scalar(self.left.buffer, at))
                made += [vector.fma(factor, x, held[r * len(right) + c]) for c, x in enumerate(right)]
            scf.YieldOp(made)
        flat = [p for row in positions for p in row]
        for value, position in zip(loop.results, flat, strict=True):
            lanes.store(value, self.into.buffer, position)


def chunks(vectors: int, registers: int) -> list[int]:
    """Divide a row's vectors into parts of similar size that leave a tile several rows."""
    most = 4 if registers >= 32 else 2
    parts = -(-vectors // most)
    return [vectors // parts + (part < vectors % parts) for part in range(parts)]


def tile_rows(vectors: int, registers: int) -> int:
    """Return the rows of a tile whose sums fit in registers, with a row of right and one element of left."""
    return min(8, (registers - 1 - vectors) // vectors)


def transposed(rows: Sequence[ir.Value]) -> list[ir.Value]:
    """Transpose a square of vectors. Each of log2(n) steps swaps blocks of half the size."""
    values, lanes = list(rows), len(rows)
    half = lanes // 2
    while half:
        low = [k if not k & half else lanes + k - half for k in range(lanes)]
        high = [k + half if not k & half else lanes + k for k in range(lanes)]
        for i in (i for i in range(lanes) if not i & half):
            a, b = values[i], values[i + half]
            values[i], values[i + half] = (vector.shuffle(a, b, order) for order in (low, high))
        half //= 2
    return values
