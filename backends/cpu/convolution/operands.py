"""Copies of a convolution's operands in the order in which register tiles read them."""

from __future__ import annotations

from torch_mlir import ir
from torch_mlir.dialects import arith, memref

from shardc.backends.cpu.convolution.lines import progression
from shardc.backends.cpu.convolution.plan import Plan, Taps
from shardc.backends.cpu.emit.loops import bounded_loop
from shardc.backends.cpu.lanes.lanes import Lanes

Part = tuple[ir.Value, ir.Value]


def pack_weights(plan: Plan, lanes: Lanes, weight: ir.Value, into: ir.Value, part: Part) -> None:
    """Pack the weights of a part of all row tiles: [groups, row tiles, residues, channels, taps, rows].

    Rows beyond the last repeat it.
    """
    e, number, window = lanes.elements, lanes.index, plan.window
    with bounded_loop(e, *part) as unit:
        group, tile = arith.divui(unit, number(plan.row_tiles)), arith.remui(unit, number(plan.row_tiles))
        last = number(plan.made - 1)
        rows = [arith.minui(lanes.sum((tile, plan.rows), i), last) for i in range(plan.rows)]
        with bounded_loop(e, 0, plan.channels) as channel:
            if plan.spec.transposed:
                line = lanes.sum((group, plan.channels), channel)
                starts = [lanes.sum((line, plan.made * window), (row, window)) for row in rows]
            else:
                line = plan.channels * window
                starts = [
                    lanes.sum((group, plan.made * line), (row, line), (channel, window)) for row in rows
                ]
            for residue in plan.every_residue:
                taps = plan.taps(residue)
                terms = len(taps[0]) * len(taps[1]) * len(taps[2]) * plan.rows
                base = lanes.sum((unit, plan.packed), plan.weights(residue), (channel, terms))
                if all(taps):
                    _pack_window(plan, lanes, (weight, starts), (into, base), taps)


def _pack_window(
    plan: Plan,
    lanes: Lanes,
    weight: tuple[ir.Value, list[ir.Value]],
    into: tuple[ir.Value, ir.Value],
    taps: Taps,
) -> None:
    """Pack a residue's weights of one channel: [taps, rows]."""
    (memory, starts), (packed, base), rows = weight, into, plan.rows
    z, y, x = taps
    _, ny, nx = plan.windows
    (z0, _, dz, _), (y0, _, dy, _) = progression(z), progression(y)
    with bounded_loop(lanes.elements, 0, len(z)) as i, bounded_loop(lanes.elements, 0, len(y)) as j:
        first = lanes.sum((z0 * ny + y0) * nx, (i, dz * ny * nx), (j, dy * nx))
        to = lanes.sum(base, (i, len(y) * len(x) * rows), (j, len(x) * rows))
        for at, tap in enumerate(x):
            for row, start in enumerate(starts):
                value = memref.load(memory, [lanes.sum(start, first, tap.number)])
                memref.store(value, packed, [lanes.sum(to, at * rows + row)])


def fill_image(plan: Plan, lanes: Lanes, image: ir.Value) -> None:
    """Set a prepared image to zeros: no copy writes the elements beyond the input."""
    zero = lanes.elements.scalar(ir.FloatAttr.get(lanes.float, 0.0))
    with bounded_loop(lanes.elements, 0, plan.size) as at:
        memref.store(zero, image, [at])


def copy_image(plan: Plan, lanes: Lanes, source: tuple[ir.Value, ir.Value], image: ir.Value) -> None:
    """Copy the input's pixels of one sample and group, from a position on, to a prepared image."""
    e, (memory, base), (z, y, x) = lanes.elements, source, plan.lines
    with (
        bounded_loop(e, 0, plan.channels) as channel,
        bounded_loop(e, *z.inside(0)) as at_z,
        bounded_loop(e, *y.inside(0)) as at_y,
    ):
        pixels = z.size * y.size * x.size
        line = lanes.sum((at_z, y.size), at_y, z.starts[0] * y.size + y.starts[0])
        row = lanes.sum(base, (channel, pixels), (line, x.size))
        to = lanes.sum((channel, plan.apart), (at_z, plan.plane), (at_y, plan.row))
        for phase, start in enumerate(x.starts):
            with bounded_loop(e, *x.inside(phase)) as at:
                value = memref.load(memory, [lanes.sum(row, start, (at, x.apart))])
                memref.store(value, image, [lanes.sum(to, phase * plan.phase, at)])
