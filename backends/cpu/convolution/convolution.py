"""``kern.convolution`` as loops over memory.

Threads first pack the weights. Then each computes some register tiles: it copies an image to where windows
need no bounds, and pixels that a vector reads together are adjacent, if the input is not so; sums are over
vectors of pixels of a row of channels, with one weight each. (Direct convolution; for the tiles see
:mod:`shardc.backends.cpu.convolution.plan`.)
"""

from __future__ import annotations

from functools import partial
from math import prod

from torch_mlir import ir
from torch_mlir.dialects import arith

from shardc.backends.body.handlers import handles
from shardc.backends.body.structured import Structured
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.convolution.operands import copy_image, fill_image, pack_weights
from shardc.backends.cpu.convolution.plan import Plan, is_planned
from shardc.backends.cpu.convolution.store import Store, scratch_size
from shardc.backends.cpu.convolution.tile import RegisterTile
from shardc.backends.cpu.emit.buffers import Buffers, Emitted, memory_of
from shardc.backends.cpu.emit.loops import barrier, bounded_loop, share
from shardc.backends.cpu.host import vector_lanes
from shardc.backends.cpu.lanes.lanes import Lanes
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.dialects.kern.convolution import ConvolutionOp, convolution_of
from shardc.dialects.kern.types import read_builtin


@handles(ConvolutionOp)
def emit_convolution(body: Structured, module: ir.Module) -> Emitted:
    """Add the loops of a ``kern.convolution`` to ``module``. Raises KernelNotSupported."""
    return _Convolution(body, module).emit()


class _Convolution:
    """Function ``@name_body``."""

    def __init__(self, body: Structured, module: ir.Module) -> None:
        spec, self.config = convolution_of(body.op), Config.of(body.config)
        if not is_planned(spec) or body.symbols:
            raise KernelNotSupported(what=f"a convolution with windows of {list(spec.window)}")
        self.name, self.plan = (
            body.name,
            Plan.of(spec, self.config.tile_m, self.config.tile_n // vector_lanes()),
        )
        values = (*body.op.operands, *body.op.results)
        types = [memory_of(t, module.context) for v in values if (t := read_builtin(v.type)) is not None]
        self.buffers = Buffers(body.name, 0, types, module)
        self.lanes = Lanes(self.buffers.block, self.plan.lanes)
        self.thread, self.threads, self.input, self.weight, *bias, self.out = self.buffers.block.arguments
        self.bias = bias[0] if bias else None

    def emit(self) -> Emitted:
        plan, lanes, e = self.plan, self.lanes, self.lanes.elements
        add = partial(self.buffers.add, element=lanes.float)
        with ir.InsertionPoint(self.buffers.block):
            packed = plan.spec.groups * plan.row_tiles
            weights = add("shared", packed * plan.packed)
            pack_weights(plan, lanes, self.weight, weights, share(e, packed, self.thread, self.threads))
            image = self.input
            if not plan.lies:
                image = add("private", plan.size)
                fill_image(plan, lanes, image)
            scratch = add("private", scratch_size(plan))
            barrier()
            tile = RegisterTile(plan, lanes, image, weights)
            self._images(tile, Store(plan, lanes, self.out, self.bias, scratch))
        self.buffers.finish()
        work = prod(plan.spec.out.shape) * plan.channels * plan.window
        threads = max(1, work // self.config.work_per_thread)
        return Emitted(self.name, 2 + plan.spec.has_bias, 1, threads, self.buffers)

    def _images(self, tile: RegisterTile, store: Store) -> None:
        """Compute this thread's tiles, image by image."""
        plan, lanes, e = self.plan, self.lanes, self.lanes.elements
        tiles, number = lanes.index(plan.tiles), lanes.index
        low, high = share(e, plan.images * plan.tiles, self.thread, self.threads)
        pixels = prod(line.size for line in plan.lines)
        with bounded_loop(e, arith.divui(low, tiles), arith.ceildivui(high, tiles)) as image:
            first = arith.muli(image, tiles)
            start = arith.muli(image, number(plan.channels * pixels))
            begin = arith.subi(arith.maxui(low, first), first)
            end = arith.minui(arith.subi(high, first), tiles)
            if not plan.lies:
                copy_image(plan, lanes, (self.input, start), tile.image)
                start = number(0)
            group = arith.remui(image, number(plan.spec.groups))
            with bounded_loop(e, begin, end) as at:
                self._tile(tile, store, (image, group), start, at)

    def _tile(
        self,
        tile: RegisterTile,
        store: Store,
        image: tuple[ir.Value, ir.Value],
        start: ir.Value,
        at: ir.Value,
    ) -> None:
        """Compute a tile of an image's pixels for all channels of the result."""
        plan, lanes = self.plan, self.lanes
        last = lanes.index(plan.count - 1)
        numbers = [arith.minui(lanes.sum((at, plan.vectors), i), last) for i in range(plan.vectors)]
        spots = [self._spot(n) for n in numbers]
        z, y, x = plan.lines
        places = [
            lanes.sum(start, plan.start, (j, z.step * plan.plane), (i, y.step * plan.row), (column, x.step))
            for j, i, column in spots
        ]
        with bounded_loop(lanes.elements, 0, plan.row_tiles) as row:
            unit = lanes.sum((image[1], plan.row_tiles), row)
            for residue in plan.every_residue:
                weights = lanes.sum((unit, plan.packed), plan.weights(residue))
                made = tile.sums(plan.taps(residue), places, weights)
                store.write(made, residue, spots, image, row)

    def _spot(self, vector: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Return the position of a vector along each dim."""
        plan, lanes = self.plan, self.lanes
        number, (rows, width) = lanes.index, plan.across
        line, column = vector, number(0)
        if plan.pieces > 1:
            line, piece = arith.divui(vector, number(plan.pieces)), arith.remui(vector, number(plan.pieces))
            column = arith.minui(lanes.sum((piece, plan.lanes)), number(width - plan.lanes))
        if rows == 1:
            return line, number(0), column
        return arith.divui(line, number(rows)), arith.remui(line, number(rows)), column
