"""Loops of a nest with a contraction: blocks, packing, register tiles, and the roots that read its result."""

from __future__ import annotations

from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith

from shardc.backends.body.contraction import Contraction
from shardc.backends.body.graph import Computed, Splat
from shardc.backends.body.linear import Axis, Linear
from shardc.backends.body.roots import Roots
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emit.buffers import Buffers
from shardc.backends.cpu.emit.element import Count, Elements, Place
from shardc.backends.cpu.emit.loops import barrier, bounded_loop, either, share
from shardc.backends.cpu.emit.nests import Nest
from shardc.backends.cpu.emit.result import Result
from shardc.backends.cpu.emit.row import Targets
from shardc.backends.cpu.matmul.microkernel import register_tile
from shardc.backends.cpu.matmul.pack import At, Left, Lines, Packing, Right
from shardc.backends.cpu.matmul.product import Operand, as_it_lies, find_product


@dataclass(eq=False)
class Matmul:
    """Generator of the loops. ``targets``: memory of results. ``value``: the contraction's result."""

    nest: Nest
    contraction: Contraction
    roots: Roots
    value: Computed
    config: Config
    elements: Elements
    buffers: Buffers
    targets: Targets

    def __post_init__(self) -> None:
        self.product, *self.operands = find_product(self.nest, self.contraction, self.value, self.roots)
        p, config, (left, right) = self.product, self.config, self.operands
        self.batch, self.m, self.n, self.k = p.batch, p.m, p.n, p.k
        self.element, self.alone, self.tiles = self.value.element, p.alone(config), p.tiles(config)
        packed = self.element if p.terms == 1 else ir.BF16Type.get()
        self.packing = Packing(self.elements, self.buffers, self.tiles, packed)
        self.left_lies = left.lies if p.reads_left(config) else None
        self.right_lies = right.lies if p.reads_right(self.tiles, config) else None

    def emit(self) -> None:
        e, number = self.elements, self.elements.number
        self.left = self._left()
        self.most = self.tiles.block_n if self.alone else self.tiles.most_n
        panels = -(-min(self.n, self.most) // self.tiles.n)
        self.right, step = self._right(panels), self._step()
        kept = 1 if self.k == self.tiles.block_k else panels
        self.partial = self.buffers.add("private", kept * self.tiles.block_m * self.tiles.n, self.element)
        low, high = number(0), number(self.batch)
        if self.alone:
            low, high = share(e, self.batch, self.buffers.thread, self.buffers.threads)
        with bounded_loop(e, low, high) as b:
            place = Place(self._spread(self.contraction.batch, b))
            with bounded_loop(e, 0, self.n, step) as n:
                self._columns(place, n, step)

    def _step(self) -> ir.Value:
        """Return the columns to pack at a time: a block for each participating thread."""
        number, block = self.elements.number, self.tiles.block_n
        if block >= min(self.n, self.most):
            return number(block)
        return arith.minui(arith.muli(self.buffers.threads, number(block)), number(self.most))

    def _left(self) -> Left:
        """Return the memory from which the left operand is read."""
        if self.left_lies is None:
            return self.packing.left(self.operands[0].along_k)
        argument, offset = self.left_lies
        apart = offset.factor(self.contraction.m[0])
        return Left(self.elements.buffers[argument], True, apart, apart, 1, uneven=self.m % self.tiles.m != 0)

    def _right(self, panels: int) -> Right:
        """Return the memory from which the right operand is read. ``panels``: panels packed at a time."""
        if self.right_lies is None:
            kind, count = "private" if self.alone else "shared", panels * self.k * self.tiles.n
            return Right(self.buffers.add(kind, count, self.packing.element), self.tiles.n)
        argument, offset = self.right_lies
        return Right(self.elements.buffers[argument], offset.factor(self.contraction.k[0]))

    def _columns(self, place: Place, n: ir.Value, step: ir.Value) -> None:
        """Pack a block of ``step`` columns with all threads, and compute this thread's rows of it."""
        e, number, tiles = self.elements, self.elements.number, self.tiles
        if self.n <= tiles.block_n:
            panels = number(-(-self.n // tiles.n))
        else:
            width = arith.minui(step, arith.subi(number(self.n), n))
            panels = arith.ceildivui(width, number(tiles.n))
        mine = (number(0), panels)
        if not self.alone:
            mine = share(e, panels, self.buffers.thread, self.buffers.threads)
        if self.right_lies is None:
            self._pack_right(place, n, mine)
        by_columns = not self.alone and self.product.by_columns(tiles, self.config)
        low, high = number(0), number(self.m)
        if not self.alone and not by_columns:
            low, high = share(e, self.m, self.buffers.thread, self.buffers.threads, multiple=tiles.m)
        with bounded_loop(e, low, high, tiles.block_m) as m:
            end = arith.minui(arith.addi(m, number(tiles.block_m)), high)
            self._rows(place, (m, end), n, mine if by_columns else (number(0), panels))
        if not self.alone and self.right_lies is None and (self.n > tiles.block_n or self.batch > 1):
            barrier()  # the packed block will be overwritten

    def _pack_right(self, place: Place, n: ir.Value, panels: tuple[ir.Value, ir.Value]) -> None:
        """Pack a block of columns from ``n`` on. Each thread packs some of its panels."""
        right = self.operands[1]
        get = self._at(right, self.contraction.n, place)
        with bounded_loop(self.elements, *panels) as p:
            first = arith.addi(n, arith.muli(p, self.elements.number(self.tiles.n)))
            sizes, lines = (self.n, self.k), self._lines(place)
            into = self.right.buffer, self._panel(p)
            self.packing.pack_right(into, get, first, sizes, right.along_k, lines)
        if not self.alone:
            barrier()

    def _lines(self, place: Place) -> Lines | None:
        """Return the right operand, if it is in memory and contiguous along k."""
        c = self.contraction
        found = as_it_lies(self.operands[1].factor, c.k, c.n, c.root, self.roots)
        if found is None:
            return None
        argument, offset = found
        return Lines(self.elements.buffers[argument], lambda j, k: self._position(offset, place, c.n, j, k))

    def _rows(
        self, place: Place, rows: tuple[ir.Value, ir.Value], n: ir.Value, panels: tuple[ir.Value, ir.Value]
    ) -> None:
        """Multiply a block of rows with the panels of a block of columns."""
        e, number, tiles = self.elements, self.elements.number, self.tiles
        m, end = rows
        get = self._at(self.operands[0], self.contraction.m, place)
        whole = self.k == tiles.block_k
        with bounded_loop(e, 0, self.k, tiles.block_k) as k:
            count: Count = tiles.block_k
            if self.k % tiles.block_k:
                count = arith.minui(number(tiles.block_k), arith.subi(number(self.k), k))
            left = number(0)
            if self.left_lies is None:
                self.packing.pack_left(self.left, get, rows, k, count, self.m % tiles.m != 0)
            else:
                left = self._position(self.left_lies[1], place, self.contraction.m, m, k)
            with bounded_loop(e, *panels) as p:
                if self.right_lies is None:
                    right = arith.addi(self._panel(p), arith.muli(k, number(tiles.n)))
                else:
                    column = arith.addi(n, arith.muli(p, number(tiles.n)))
                    right = self._position(self.right_lies[1], place, self.contraction.n, column, k)
                result = number(0) if whole else self._partial(p)
                with bounded_loop(e, 0, arith.subi(end, m), tiles.m) as r:
                    last = arith.subi(arith.subi(end, number(1)), arith.addi(m, r))
                    register_tile(
                        e,
                        tiles,
                        (self.left, arith.addi(left, arith.muli(r, number(self.left.per_row))), last),
                        (self.right, right),
                        (self.partial, arith.addi(result, arith.muli(r, number(tiles.n)))),
                        count,
                        None if whole else arith.cmpi(arith.CmpIPredicate.eq, k, number(0)),
                    )
                if whole:
                    self._finish(place, rows, arith.addi(n, arith.muli(p, number(tiles.n))), result)
        if not whole:
            with bounded_loop(e, *panels) as p:
                self._finish(place, rows, arith.addi(n, arith.muli(p, number(tiles.n))), self._partial(p))

    def _position(
        self, offset: Linear, place: Place, axes: list[Axis], at: ir.Value, k: ir.Value
    ) -> ir.Value:
        """Return the position in memory of an operand's element: ``at`` on its own axis, and term ``k``."""
        return self.elements.position(offset, place.inside({axes[0]: at, self.contraction.k[0]: k}))

    def _panel(self, p: ir.Value) -> ir.Value:
        return arith.muli(p, self.elements.number(self.k * self.tiles.n))

    def _partial(self, p: ir.Value) -> ir.Value:
        return arith.muli(p, self.elements.number(self.tiles.block_m * self.tiles.n))

    def _finish(self, place: Place, rows: tuple[ir.Value, ir.Value], n: ir.Value, at: ir.Value) -> None:
        """Store a panel of the result, and the roots that read it."""
        e, number, width = self.elements, self.elements.number, self.tiles.n
        m, end = rows

        def columns(count: Count) -> None:
            with bounded_loop(e, 0, arith.subi(end, m)) as i:
                outer = place.inside(self._spread(self.contraction.m, arith.addi(m, i)))
                start = arith.addi(at, arith.muli(i, number(width)))
                with bounded_loop(e, 0, count) as j:
                    inner = outer.inside(self._spread(self.contraction.n, arith.addi(n, j)))
                    self._store(e.load(self.partial, arith.addi(start, j), self.element), inner)

        if self.n % width == 0:
            columns(width)
            return
        left = arith.subi(number(self.n), n)
        is_whole = arith.cmpi(arith.CmpIPredicate.uge, left, number(width))
        either(is_whole, lambda: columns(width), lambda: columns(left))

    def _store(self, total: ir.Value, place: Place) -> None:
        """Store one element of the result, and of each root that reads it."""
        e, product = self.elements, Result(self.contraction.root)
        if not _is_zero(product.init):
            total = arith.addf(e.element(product.init, product.index, place), total)
        place.known[self.value, product.index] = total
        for result in map(Result, self.nest.roots):
            if result in self.targets:
                made = total if result == product else e.element(result.stored, result.index, place)
                e.store(made, self.targets[result], e.position(result.offset, place))

    def _at(self, operand: Operand, axes: list[Axis], place: Place) -> At:
        """Return a function that computes elements of an operand."""
        root = self.contraction.root

        def at(position: ir.Value, k: ir.Value) -> ir.Value:
            here = place.inside({**self._spread(axes, position), **self._spread(self.contraction.k, k)})
            return self.elements.part(Result(root).generic, operand.factor.value, root.dims, here)

        return at

    def _spread(self, axes: list[Axis], flat: ir.Value) -> dict[Axis, ir.Value]:
        """Split a position along several axes into a position on each."""
        return self.elements.spread({axis: self.nest.sizes[axis] for axis in axes}, flat)


def _is_zero(value: object) -> bool:
    """Return True if a sum starts from 0."""
    if not isinstance(value, Splat):
        return False
    scalar = value.scalar
    if isinstance(scalar, ir.Value):
        if isinstance(scalar, ir.BlockArgument) or scalar.owner.name != "arith.constant":
            return False
        scalar = scalar.owner.attributes["value"]
    return ir.FloatAttr(scalar).value == 0.0
