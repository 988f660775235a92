"""Non-temporal stores of large results. A store into a cache would first read the line that it replaces.

Such stores write whole cache lines, and LLVM's loop vectorizer does not generate them. So a loop writes a
piece of the row into a buffer that stays in the first cache, and vectors are moved from there.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from math import prod

from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from shardc.backends.body.graph import Graph
from shardc.backends.body.linear import Axis
from shardc.backends.body.roots import Root
from shardc.backends.cpu.emit.buffers import Buffers, width, width_bytes
from shardc.backends.cpu.emit.element import Elements, Place
from shardc.backends.cpu.emit.loops import bounded_loop
from shardc.backends.cpu.emit.nests import Nest
from shardc.backends.cpu.emit.result import Result
from shardc.backends.cpu.emit.stages import Loop, Stages
from shardc.backends.cpu.host import architecture
from shardc.backends.cpu.lanes.scalars import call_intrinsic
from shardc.cost.machine import Cpu

LINE_BYTES = Cpu.line_bytes


def streams_of(
    nest: Nest, stages: Stages, graph: Graph, read_later: Collection[Root], far_bytes: int
) -> dict[Loop, list[Root]]:
    """Return the results that each loop of a nest writes with non-temporal stores.

    Results that are read again (``read_later``: by other nests), or that overwrite operands, are excluded.
    """
    if architecture() != "x86_64" or nest.transposed or graph.flat:
        return {}
    in_place = {r for r in nest.roots if any(n in graph.in_place for stored in r.stores for n in stored)}
    near = {*read_later, *in_place, *stages.again.values()}
    return {loop: found for loop in stages.loops if (found := streamed(nest, loop, near, far_bytes))}


def streamed(nest: Nest, loop: Loop, kept: Collection[Root], far_bytes: int) -> list[Root]:
    """Return the roots of a loop with non-temporal stores.

    These are results of at least ``far_bytes``, not ``kept``, in whole cache lines. A loop that accumulates
    in a register has none, because it does not run in pieces.
    """
    if any(root.is_reduction and not any(a in root.parallel for a in loop.axes) for root in loop.roots):
        return []
    axis, *rest = loop.axes or [None]
    if axis is None or axis in nest.written_out or not set(rest) <= set(nest.written_out):
        return []
    stored = (r for r in loop.roots if not r.is_reduction and r not in kept)
    return [r for r in stored if _in_lines(r, axis, nest, far_bytes)]


def _in_lines(root: Root, axis: Axis, nest: Nest, far_bytes: int) -> bool:
    size, result = nest.sizes[axis], Result(root)
    if not all(isinstance(n, int) for n in (size, *result.shape)) or width(result.element) < 8:
        return False
    bytes_, offset = width_bytes(result.element), result.offset
    others = [factor for other, factor in offset.terms if other not in {axis, *nest.merged}]
    steps = [size, offset.constant, *others]
    whole = all(isinstance(n, int) and n * bytes_ % LINE_BYTES == 0 for n in steps)
    return whole and offset.factor(axis) == 1 and int(result.count) * bytes_ >= far_bytes


class Stream:
    """Piece of one result in a buffer, to be moved to ``target``.

    ``axis``: the loop's axis. ``parts``: unrolled axes inside of it, with their sizes.
    """

    def __init__(
        self, root: Root, axis: Axis, parts: dict[Axis, int], piece: int, target: ir.Value, buffers: Buffers
    ) -> None:
        self.root, self.axis, self.parts, self.piece, self.target = root, axis, parts, piece, target
        self.offset, self.element = Result(root).offset, Result(root).element
        self.buffer = buffers.add("private", piece * prod(parts.values()), self.element)

    def at(self, elements: Elements, place: Place, first: ir.Value) -> ir.Value:
        """Return the position of a place's element in the buffer of a piece that begins at ``first``."""
        position = arith.subi(place.axes[self.axis], first)
        step = self.piece
        for part, size in self.parts.items():
            position = arith.addi(position, arith.muli(place.axes[part], elements.number(step)))
            step *= size
        return position

    def write(self, elements: Elements, place: Place, first: ir.Value, end: ir.Value) -> None:
        """Move the piece from ``first`` to before ``end`` to its place in the result."""
        lanes = LINE_BYTES // width_bytes(self.element)
        type_ = ir.VectorType.get([lanes], self.element)
        for steps in product(*map(range, self.parts.values())):
            parts = {part: elements.number(n) for part, n in zip(self.parts, steps, strict=True)}
            with bounded_loop(elements, first, end, lanes) as position:
                inside = Place({**place.axes, **parts, self.axis: position})
                at = self.at(elements, inside, first)
                line = vector.load(type_, self.buffer, [at], alignment=LINE_BYTES)
                to = elements.position(self.offset, inside)
                vector.store(line, self.target, [to], nontemporal=True, alignment=LINE_BYTES)


def order_stores() -> None:
    """Insert a fence after non-temporal stores, which are not ordered with other stores."""
    call_intrinsic("llvm.x86.sse.sfence", [], [])
