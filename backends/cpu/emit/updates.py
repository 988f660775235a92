"""Updates of a ``kern.scatter_add``: rows in memory, or rows that the body's loops compute."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from torch_mlir import ir
from torch_mlir.dialects import arith

from shardc.backends.body.graph import Argument, Graph, Value
from shardc.backends.body.linear import Axis, Index, Linear
from shardc.backends.body.roots import Roots
from shardc.backends.cpu.emit.buffers import width_bytes
from shardc.backends.cpu.emit.element import Count, Elements, Place
from shardc.backends.cpu.emit.loops import bounded_loop, short_loop, when
from shardc.backends.cpu.emit.streams import LINE_BYTES
from shardc.dialects.kern.scatter_add import ScatterAdd
from shardc.dialects.kern.size import AnySize

LONG = 256
"""Least columns of a row in one loop of any number of steps; fewer are pieces of a cache line."""


class Updates:
    """Elements of ``value``, whose dims are those before the rows of ``spec``, its index's, and columns."""

    def __init__(self, value: Value, spec: ScatterAdd, graph: Graph, elements: Elements) -> None:
        self._elements, self._value = elements, value
        before, positions = spec.dim, len(spec.index.shape)
        shape: list[AnySize] = list(value.shape)
        if isinstance(value, Argument):  # any dims may be one in memory
            shape, before, positions = [spec.outer, spec.count, spec.inner], 1, 1
            self._value = Argument(tuple(shape), value.element, position=value.position)
            elements.buffers[self._value] = elements.buffers[value]
        axes: list[Axis] = [("update", dim) for dim in range(len(shape))]
        sizes = dict(zip(axes, shape, strict=True))
        self._outer, self._at, self._columns = (
            {a: sizes[a] for a in part if sizes[a] != 1}
            for part in (axes[:before], axes[before : before + positions], axes[before + positions :])
        )
        self._index: Index = tuple(Linear.axis(a) if sizes[a] != 1 else Linear() for a in axes)
        between = Roots(graph, [], {}).reads_of([(self._value, self._index)]).between
        self._rows = [(v, index) for v, index in between if not self._varies(index)]

    def _varies(self, index: Index) -> bool:
        return any(not position.axes.isdisjoint(self._columns) for position in index)

    def shared(self, line: int) -> tuple[AnySize, int]:
        """Return how many columns, or groups of them, threads share, and in multiples of what."""
        first, *others = self._columns.values() or (1,)
        return first, (1 if others else line)

    def each(
        self, outer: ir.Value, at: ir.Value, low: Count, high: Count, write: Callable[..., None]
    ) -> None:
        """Build loops over columns ``low`` to before ``high`` of the update at a position, or over these
        groups of columns. ``write(column, element)`` writes the code of one column.
        """
        elements = self._elements
        row = Place({**elements.spread(self._outer, outer), **elements.spread(self._at, at)})
        for value, index in reversed(self._rows):
            elements.element(value, index, row)
        sizes = list(self._columns.items())

        def nested(number: int, column: ir.Value | None, place: Place, bounds: tuple[Count, Count]) -> None:
            with short_loop(elements, *bounds) as position:
                axis = sizes[number][0] if sizes else None
                inside = place if axis is None else place.inside({axis: position})
                size = prod(n for _, n in sizes[number + 1 :])
                part = position if size == 1 else arith.muli(position, elements.number(size))
                found = part if column is None else arith.addi(column, part)
                if number + 1 < len(sizes):
                    nested(number + 1, found, inside, (0, sizes[number + 1][1]))
                else:
                    write(found, elements.element(self._value, self._index, inside))

        size = next(iter(self._columns.values()), 1)
        every = isinstance(high, int)
        if len(sizes) > 1 or not isinstance(size, int) or size >= LONG:
            nested(0, None, row, (low, high))
            return
        low, high = map(elements.number, (low, high))
        line = LINE_BYTES // width_bytes(self._value.element)
        whole = size // line * line
        if whole:
            with bounded_loop(elements, low, arith.minui(high, elements.number(whole)), line) as first:
                self._piece(first, line, row, write)
        if whole < size and every:
            self._piece(elements.number(whole), size - whole, row, write)
        elif whole < size:
            last = arith.cmpi(arith.CmpIPredicate.eq, high, elements.number(size))
            some = arith.cmpi(arith.CmpIPredicate.ult, low, high)
            with when(arith.andi(last, some)):
                self._piece(elements.number(whole), size - whole, row, write)

    def _piece(self, first: ir.Value, count: int, row: Place, write: Callable[..., None]) -> None:
        """Build a loop over a known number of columns, which becomes vectors without a rest."""
        elements = self._elements
        with short_loop(elements, 0, count) as at:
            column = arith.addi(first, at)
            inside = row.inside(dict.fromkeys(self._columns, column))
            write(column, elements.element(self._value, self._index, inside))
