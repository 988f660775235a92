"""Innermost loop of a matmul: each step adds an outer product to a tile in vector registers."""

from __future__ import annotations

from torch_mlir import ir
from torch_mlir.dialects import arith, memref, scf, vector

from shardc.backends.cpu.emit.buffers import width
from shardc.backends.cpu.emit.element import Count, Elements
from shardc.backends.cpu.emit.loops import carrying_loop
from shardc.backends.cpu.lanes.scalars import call_intrinsic
from shardc.backends.cpu.matmul.pack import Left, Right
from shardc.backends.cpu.matmul.tiles import Tiles


def register_tile(
    elements: Elements,
    tiles: Tiles,
    left: tuple[Left, ir.Value, ir.Value],
    right: tuple[Right, ir.Value],
    result: tuple[ir.Value, ir.Value],
    count: Count,
    first: ir.Value | None,
) -> None:
    """Add ``count`` terms to a tile.

    ``left`` and ``right``: memory, and the start of the tile in it; ``left`` also has the number of its last
    valid row. ``result``: memory and start, with ``tiles.n`` elements per row. ``first``: condition that
    there is no earlier sum to add to; None if there never is one.
    """
    number, lanes = elements.number, tiles.lanes
    (packed, a, last), (panel, b), (memory, c) = left, right, result
    rows = [arith.addi(a, packed.offset(elements, i, last)) for i in range(tiles.m)]
    type_ = ir.VectorType.get([lanes], ir.MemRefType(memory.type).element_type)
    zero = elements.scalar(ir.DenseElementsAttr.get_splat(type_, ir.FloatAttr.get(type_.element_type, 0.0)))
    offsets = (i * tiles.n + j for i in range(tiles.m) for j in range(0, tiles.n, lanes))
    places = [arith.addi(c, number(offset)) for offset in offsets]
    loaded = ir.VectorType.get([lanes * tiles.terms], ir.MemRefType(panel.buffer.type).element_type)
    with carrying_loop(elements, 0, count, [zero] * len(places), tiles.terms) as (k, loop):
        row = arith.addi(b, arith.muli(k, number(panel.step)))
        columns = [
            vector.load(loaded, panel.buffer, [arith.addi(row, number(j * tiles.terms))])
            for j in range(0, tiles.n, lanes)
        ]
        step = arith.muli(k, number(packed.step))
        sums = list(loop.inner_iter_args)
        for i, start in enumerate(rows):
            term = _everywhere(packed.buffer, arith.addi(start, step), loaded, tiles.terms)
            for j, column in enumerate(columns):
                at = i * len(columns) + j
                sums[at] = _added(sums[at], term, column, tiles.terms)
        scf.YieldOp(sums)
    for value, at in zip(loop.results, places, strict=True):
        if first is not None:  # blocks are summed separately: the error grows with a block's length
            value = arith.select(first, value, arith.addf(value, vector.load(type_, memory, [at])))
        vector.store(value, memory, [at])


def _everywhere(buffer: ir.Value, at: ir.Value, type_: ir.VectorType, terms: int) -> ir.Value:
    """Broadcast ``terms`` elements from ``at`` on to a vector of ``type_``."""
    if terms == 1:
        return vector.broadcast(type_, memref.load(buffer, [at]))
    pair = vector.load(ir.VectorType.get([terms], type_.element_type), buffer, [at])
    whole = ir.IntegerType.get_signless(width(type_.element_type) * terms)
    lane = vector.bitcast(ir.VectorType.get([1], whole), pair)
    return vector.bitcast(type_, vector.broadcast(ir.VectorType.get([type_.shape[0] // terms], whole), lane))


def _added(total: ir.Value, x: ir.Value, y: ir.Value, terms: int) -> ir.Value:
    """Return ``total + x * y`` in each lane, or with the sum of a pair of products."""
    if terms == 1:
        return vector.fma(x, y, total)
    return call_intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", [total.type], [total, x, y]).result
