"""Selection of the blocks of keys to compute, and the mask of a block of scores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

from torch_mlir import ir
from torch_mlir.dialects import arith, memref, scf, vector

from shardc.backends.cpu.attention.shared import Blocks, Keys, Rows
from shardc.backends.cpu.attention.turning import Read, Turning
from shardc.backends.cpu.emit.element import Count
from shardc.backends.cpu.emit.loops import carrying_loop, when
from shardc.backends.cpu.lanes.lanes import Matrix


@contextmanager
def seen_blocks(
    blocks: Blocks, rows: Rows, scores: Matrix, part: Count = 0, parts: Count = 1
) -> Iterator[Keys]:
    """Yield blocks of the keys that some of these queries see. With a mask, ``scores`` contains it."""
    with blocks.key_blocks(blocks.seen_keys(rows), part, parts) as keys:
        if "mask" not in blocks.memory:
            yield keys
            return
        with when(_fill_mask(blocks, rows, keys, scores)):
            yield keys


def _fill_mask(blocks: Blocks, rows: Rows, keys: Keys, scores: Matrix) -> ir.Value:
    """Set ``scores[key, query]`` to the mask if it shows any key; return whether it does.

    Lanes may repeat a query.
    """
    b, h, m, n = (blocks.spec.tensors["mask"].stride(dim) for dim in "bhmn")
    start = blocks.lanes.sum((rows.b, b), (rows.h, h), (rows.first, m), (keys.first, n))
    source = Matrix(blocks.memory["mask"], start, m, n)
    count = rows.count if source.row_stride != 0 else blocks.lanes.index(1)
    seen = _any_seen(blocks, source, count, keys.count)
    with when(seen):
        if source.row_stride != 0:
            turning = Turning(blocks.lanes, rows.count, keys.count, blocks.queries)
            turning.into_lanes(source, scores, lambda value, start: value, _reader(blocks))
        else:
            _spread(blocks, source, keys, scores)
    return seen


def _reader(blocks: Blocks) -> Read:
    """Return a reader of the mask's additive form: booleans become 0 and -inf."""
    lanes, truth = blocks.lanes, isinstance(blocks.element("mask"), ir.IntegerType)

    def read(buffer: ir.Value, position: ir.Value, wide: bool) -> ir.Value:
        if not truth:
            return lanes.load(buffer, position) if wide else lanes.scalar(buffer, position)
        if wide:
            found = vector.load(lanes.of(blocks.element("mask")), buffer, [position])
            return arith.select(_nonzero(found), lanes.splat(0.0), lanes.splat(-inf))
        shown, hidden = arith.constant(lanes.float, 0.0), arith.constant(lanes.float, -inf)
        return arith.select(_nonzero(memref.load(buffer, [position])), shown, hidden)

    return read


def _nonzero(value: ir.Value) -> ir.Value:
    zero = ir.IntegerAttr.get(ir.IntegerType.get_signless(8), 0)
    if isinstance(value.type, ir.VectorType):
        zero = ir.DenseElementsAttr.get_splat(value.type, zero)
    return arith.cmpi(arith.CmpIPredicate.ne, value, arith.constant(value.type, zero))


def _any_seen(blocks: Blocks, source: Matrix, rows: ir.Value, columns: ir.Value) -> ir.Value:
    byte, read = ir.IntegerType.get_signless(8), _reader(blocks)
    none = arith.constant(byte, 0)
    elements = blocks.lanes.elements
    with carrying_loop(elements, 0, rows, [none]) as (r, outer):
        with carrying_loop(elements, 0, columns, list(outer.inner_iter_args)) as (c, inner):
            value = read(source.buffer, source.at(blocks.lanes, r, c), False)
            visible = arith.cmpf(arith.CmpFPredicate.UNE, value, arith.constant(value.type, -inf))
            scf.YieldOp([arith.ori(inner.inner_iter_args[0], arith.extui(byte, visible))])
        scf.YieldOp(list(inner.results))
    return _nonzero(outer.results[0])


def _spread(blocks: Blocks, source: Matrix, keys: Keys, scores: Matrix) -> None:
    """Write a mask that is the same for all queries."""
    read = _reader(blocks)
    with blocks.loop(0, keys.count) as n:
        value = blocks.lanes.splat(read(source.buffer, source.at(blocks.lanes, 0, n), False))
        for start in blocks.lane_starts():
            blocks.lanes.store(value, scores.buffer, scores.at(blocks.lanes, n, start))
