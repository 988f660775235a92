"""Register tile of a convolution: sums over a window and the channels of the input, in registers."""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith, memref, scf, vector

from shardc.backends.cpu.convolution.lines import Tap, progression
from shardc.backends.cpu.convolution.plan import Plan, Taps
from shardc.backends.cpu.emit.loops import carrying_loop
from shardc.backends.cpu.lanes.lanes import Lanes

Memory = tuple[ir.Value, ir.Value]
"""A buffer and a position in it."""


class RegisterTile:
    """Generator of sums. ``image``: memory of the prepared image; ``weights``: of the packed weights."""

    def __init__(self, plan: Plan, lanes: Lanes, image: ir.Value, weights: ir.Value) -> None:
        self.plan, self.lanes, self.image, self.weights = plan, lanes, image, weights
        self.zero = lanes.elements.scalar(
            ir.DenseElementsAttr.get_splat(lanes.type, ir.FloatAttr.get(lanes.float, 0.0))
        )

    def sums(self, taps: Taps, places: Sequence[ir.Value], weights: ir.Value) -> list[ir.Value]:
        """Return the sums of a tile, for each row those of all vectors.

        ``places``: for each vector, the position of what its first pixel reads. ``weights``: that of the
        first weight.
        """
        plan, e = self.plan, self.lanes.elements
        zeros = [self.zero] * (plan.rows * plan.vectors)
        if not all(taps):
            return zeros
        if plan.block == plan.channels:
            return self._channels(taps, places, weights, 0, plan.channels)
        with carrying_loop(e, 0, plan.channels, zeros, plan.block) as (first, loop):
            last = arith.minui(arith.addi(first, e.number(plan.block)), e.number(plan.channels))
            made = self._channels(taps, places, weights, first, last)
            scf.YieldOp([arith.addf(a, b) for a, b in zip(loop.inner_iter_args, made, strict=True)])
        return list(loop.results)

    def _channels(
        self,
        taps: Taps,
        places: Sequence[ir.Value],
        weights: ir.Value,
        first: ir.Value | int,
        last: ir.Value | int,
    ) -> list[ir.Value]:
        plan, number = self.plan, self.lanes.elements.number
        terms = plan.rows * len(taps[0]) * len(taps[1]) * len(taps[2])
        zeros = [self.zero] * (plan.rows * plan.vectors)
        with carrying_loop(self.lanes.elements, first, last, zeros) as (channel, loop):
            image = arith.muli(channel, number(plan.apart))
            here = [arith.addi(place, image) for place in places]
            row = arith.addi(weights, arith.muli(channel, number(terms)))
            scf.YieldOp(self._along(0, taps, list(loop.inner_iter_args), here, row))
        return list(loop.results)

    def _along(
        self, dim: int, taps: Taps, sums: list[ir.Value], places: list[ir.Value], weights: ir.Value
    ) -> list[ir.Value]:
        """Add the terms of a window's elements along ``dim`` and the dims behind it."""
        plan, number = self.plan, self.lanes.elements.number
        if dim == 2:
            for at, tap in enumerate(taps[2]):
                sums = self._added(sums, places, weights, tap, at * plan.rows)
            return sums
        apart = (plan.plane, plan.row)[dim]
        terms = plan.rows
        for inner in taps[dim + 1 :]:
            terms *= len(inner)
        if not plan.is_looped(dim) or len(taps[dim]) == 1:
            for at, tap in enumerate(taps[dim]):
                here = [arith.addi(place, number(tap.offset * apart)) for place in places]
                row = arith.addi(weights, number(at * terms))
                sums = self._along(dim + 1, taps, sums, here, row)
            return sums
        _, offset, _, step = progression(taps[dim])
        with carrying_loop(self.lanes.elements, 0, len(taps[dim]), sums) as (at, loop):
            # Steps may be negative: positions count modulo 2^64.
            moved = arith.muli(at, number(step * apart))
            here = [arith.addi(arith.addi(p, number(offset * apart)), moved) for p in places]
            row = arith.addi(weights, arith.muli(at, number(terms)))
            scf.YieldOp(self._along(dim + 1, taps, list(loop.inner_iter_args), here, row))
        return list(loop.results)

    def _added(
        self, sums: list[ir.Value], places: list[ir.Value], weights: ir.Value, tap: Tap, at: int
    ) -> list[ir.Value]:
        plan, number = self.plan, self.lanes.elements.number
        offset = number(tap.phase * plan.phase + tap.offset)
        columns = [self.lanes.load(self.image, arith.addi(place, offset)) for place in places]
        made = list(sums)
        for i in range(plan.rows):
            scalar = memref.load(self.weights, [arith.addi(weights, number(at + i))])
            term = vector.broadcast(self.lanes.type, scalar)
            for j, column in enumerate(columns):
                n = i * len(columns) + j
                made[n] = vector.fma(term, column, made[n])
        return made
