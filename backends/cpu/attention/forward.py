"""``kern.attention`` as loops: online softmax (Dao et al., FlashAttention, 2022), a block of queries at a
time.
"""

from __future__ import annotations

from math import inf

from torch_mlir import ir
from torch_mlir.dialects import arith, math, scf

from shardc.backends.cpu.attention.shared import Blocks, Keys, Rows
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emit.emitted import Emitted
from shardc.backends.cpu.lanes.lanes import Matrix
from shardc.dialects.kern.attention_maps import Attention
from shardc.dialects.kern.size import Symbol


def emit_forward(
    name: str, spec: Attention, symbols: list[Symbol], config: Config, module: ir.Module
) -> Emitted:
    """Adds the function of one ``kern.attention`` to ``module``. Threads take blocks of queries in turn."""
    inputs = [role for role in ("q", "k", "v", "mask") if role in spec.tensors]
    blocks = Blocks(name, inputs, ["out", "lse"], spec, symbols, config, module)
    sizes, lanes = spec.sizes, blocks.lanes
    with ir.InsertionPoint(blocks.block):
        forward = _Forward(blocks)
        loop = scf.ForOp(blocks.thread, lanes.index(blocks.row_blocks), blocks.threads)
        with ir.InsertionPoint(loop.body):
            unit = loop.induction_variable
            number = arith.remui(unit, lanes.index(blocks.blocks))
            head = arith.divui(unit, lanes.index(blocks.blocks))
            b, h = arith.divui(head, lanes.index(sizes["h"])), arith.remui(head, lanes.index(sizes["h"]))
            forward.emit(blocks.rows(b, h, number))
            scf.YieldOp([])
    blocks.buffers.finish(blocks.function)
    return blocks.emitted(name, blocks.row_blocks, 2)


class _Forward:
    def __init__(self, blocks: Blocks) -> None:
        self.blocks, self.lanes = blocks, blocks.lanes
        sizes, queries = blocks.sizes, blocks.queries
        self.turned = blocks.private(sizes["d"], queries)
        self.scores = blocks.private(blocks.keys, queries)
        self.out = blocks.private(sizes["e"], queries)
        self.top, self.total, self.decay = (blocks.private(1, queries) for _ in range(3))
        self.wide_k, self.wide_v = blocks.wide(sizes["d"]), blocks.wide(sizes["e"])

    def emit(self, rows: Rows) -> None:
        blocks, sizes = self.blocks, self.blocks.sizes
        blocks.turn("q", rows, sizes["d"], self.turned, blocks.spec.scale)
        blocks.clear(self.out, sizes["e"])
        for start in blocks.lane_starts():
            self._put(self.top, start, self.lanes.splat(-inf))
            self._put(self.total, start, self.lanes.splat(0.0))
        with blocks.seen_blocks(rows, self.scores) as keys:
            blocks.score(blocks.operand("k", rows, keys, self.wide_k), self.turned, rows, keys, self.scores)
            self._softmax(keys)
            values = blocks.operand("v", rows, keys, self.wide_v)
            across = Matrix(values.buffer, values.start, values.column_stride, values.row_stride)
            blocks.product(across, self.scores, self.out, sizes["e"], keys.count, self._decayed)
        self._finish(rows)

    def _get(self, row: Matrix, start: int) -> ir.Value:
        return self.lanes.load(row.buffer, self.lanes.index(start))

    def _put(self, row: Matrix, start: int, value: ir.Value) -> None:
        self.lanes.store(value, row.buffer, self.lanes.index(start))

    def _decayed(self, position: ir.Value, vector: int) -> ir.Value:
        """What the sums of earlier blocks are worth under the new maximum."""
        return arith.mulf(
            self.lanes.load(self.out.buffer, position), self._get(self.decay, vector * self.lanes.width)
        )

    def _softmax(self, keys: Keys) -> None:
        """Scores become exponentials under the new maximum."""
        lanes, starts = self.lanes, list(self.blocks.lane_starts())
        before = [self._get(self.top, start) for start in starts]
        loop = scf.ForOp(lanes.index(0), keys.count, lanes.index(1), before)
        with ir.InsertionPoint(loop.body):
            held = zip(starts, loop.inner_iter_args, strict=True)
            scf.YieldOp([lanes.maximum(self._score(loop, start), top) for start, top in held])
        tops = [lanes.instead(top, -inf, 0.0) for top in loop.results]
        decays = [lanes.exp(arith.subf(old, top)) for old, top in zip(before, tops, strict=True)]
        totals = [
            arith.mulf(self._get(self.total, start), d) for start, d in zip(starts, decays, strict=True)
        ]
        sums = scf.ForOp(lanes.index(0), keys.count, lanes.index(1), totals)
        with ir.InsertionPoint(sums.body):
            made = []
            for start, top, total in zip(starts, tops, sums.inner_iter_args, strict=True):
                weight = lanes.exp(arith.subf(self._score(sums, start), top))
                lanes.store(weight, self.scores.buffer, self.scores.at(lanes, sums.induction_variable, start))
                made.append(arith.addf(total, weight))
            scf.YieldOp(made)
        for start, top, total, decay in zip(starts, loop.results, sums.results, decays, strict=True):
            self._put(self.top, start, top)
            self._put(self.total, start, total)
            self._put(self.decay, start, decay)

    def _score(self, loop: scf.ForOp, start: int) -> ir.Value:
        return self.lanes.load(self.scores.buffer, self.scores.at(self.lanes, loop.induction_variable, start))

    def _finish(self, rows: Rows) -> None:
        """out, divided by the sums, and lse."""
        lanes, blocks = self.lanes, self.blocks
        columns = blocks.sizes["e"]
        for start in blocks.lane_starts():
            top, total = self._get(self.top, start), self._get(self.total, start)
            divisor = lanes.instead(total, 0.0, 1.0)
            with blocks.loop(0, columns) as (e, _):
                at = self.out.at(lanes, e, start)
                lanes.store(arith.divf(lanes.load(self.out.buffer, at), divisor), self.out.buffer, at)
            lse = lanes.instead(arith.addf(math.log(total), top), -inf, blocks.spec.unseen_lse)
            self._put(self.top, start, lse)
        blocks.turn_back(self.out, "out", rows, columns)
        blocks.turn_back(self.top, "lse", rows, 1)
