"""``kern.attention`` as loops: online softmax (Dao et al., FlashAttention, 2022) by blocks of queries."""

from __future__ import annotations

from math import inf

from torch_mlir import ir
from torch_mlir.dialects import arith, math, scf

from shardc.backends.body.handlers import handles
from shardc.backends.body.structured import Structured
from shardc.backends.cpu.attention.mask import seen_blocks
from shardc.backends.cpu.attention.shared import Blocks, Keys, Rows
from shardc.backends.cpu.emit.buffers import Emitted
from shardc.backends.cpu.emit.loops import carrying_loop
from shardc.backends.cpu.lanes.lanes import Matrix
from shardc.dialects.kern.attention import AttentionOp
from shardc.dialects.kern.attention_maps import read_attention


@handles(AttentionOp)
def emit_forward(body: Structured, module: ir.Module) -> Emitted:
    """Add the function of a ``kern.attention`` to ``module``. Threads take blocks of queries round-robin."""
    spec = read_attention(body.op, body.shapes)
    blocks = Blocks(body, spec, ["q", "k", "v", "mask"], ["out", "lse"], module)
    lanes = blocks.lanes
    with ir.InsertionPoint(blocks.block):
        forward = _Forward(blocks)
        with blocks.loop(blocks.thread, blocks.row_blocks, blocks.threads) as unit:
            number = arith.remui(unit, lanes.index(blocks.blocks))
            head = arith.divui(unit, lanes.index(blocks.blocks))
            heads = lanes.index(spec.sizes["h"])
            forward.emit(blocks.rows(arith.divui(head, heads), arith.remui(head, heads), number))
    return blocks.finish(blocks.row_blocks, 2)


class _Forward:
    def __init__(self, blocks: Blocks) -> None:
        self.blocks, self.lanes = blocks, blocks.lanes
        queries = blocks.queries
        self.turned = blocks.buffer(blocks.d, queries)
        self.scores = blocks.buffer(blocks.keys, queries)
        self.out = blocks.buffer(blocks.e, queries)
        self.top, self.total, self.decay = (blocks.buffer(1, queries) for _ in range(3))
        self.wide_k, self.wide_v = blocks.wide(blocks.d), blocks.wide(blocks.e)

    def emit(self, rows: Rows) -> None:
        blocks = self.blocks
        blocks.turn("q", rows, blocks.d, self.turned, blocks.spec.scale)
        blocks.clear(self.out, blocks.e)
        for start in blocks.lane_starts():
            self._put(self.top, start, self.lanes.splat(-inf))
            self._put(self.total, start, self.lanes.splat(0.0))
        with seen_blocks(blocks, rows, self.scores) as keys:
            blocks.score(blocks.operand("k", rows, keys, self.wide_k), self.turned, rows, keys, self.scores)
            self._softmax(keys)
            values = blocks.operand("v", rows, keys, self.wide_v)
            blocks.product(values.across, self.scores, self.out, blocks.e, keys.count, self._decayed)
        self._finish(rows)

    def _get(self, row: Matrix, start: int) -> ir.Value:
        return self.lanes.load(row.buffer, self.lanes.index(start))

    def _put(self, row: Matrix, start: int, value: ir.Value) -> None:
        self.lanes.store(value, row.buffer, self.lanes.index(start))

    def _decayed(self, position: ir.Value, vector: int) -> ir.Value:
        """Rescale the sums of earlier blocks to the new maximum."""
        sums = self.lanes.load(self.out.buffer, position)
        return arith.mulf(sums, self._get(self.decay, vector * self.lanes.width))

    def _softmax(self, keys: Keys) -> None:
        """Turn scores into exponentials relative to the new maximum."""
        lanes, starts = self.lanes, list(self.blocks.lane_starts())
        before = [self._get(self.top, start) for start in starts]
        with carrying_loop(lanes.elements, 0, keys.count, before) as (n, loop):
            held = zip(starts, loop.inner_iter_args, strict=True)
            scf.YieldOp([lanes.maximum(self._score(n, start), top) for start, top in held])
        tops = [lanes.instead(top, -inf, 0.0) for top in loop.results]
        decays = [math.exp(arith.subf(old, top)) for old, top in zip(before, tops, strict=True)]
        kept = zip(starts, decays, strict=True)
        totals = [arith.mulf(self._get(self.total, start), decay) for start, decay in kept]
        with carrying_loop(lanes.elements, 0, keys.count, totals) as (n, sums):
            made = []
            for start, top, total in zip(starts, tops, sums.inner_iter_args, strict=True):
                weight = math.exp(arith.subf(self._score(n, start), top))
                lanes.store(weight, self.scores.buffer, self.scores.at(lanes, n, start))
                made.append(arith.addf(total, weight))
            scf.YieldOp(made)
        for start, top, total, decay in zip(starts, loop.results, sums.results, decays, strict=True):
            self._put(self.top, start, top)
            self._put(self.total, start, total)
            self._put(self.decay, start, decay)

    def _score(self, key: ir.Value, start: int) -> ir.Value:
        return self.lanes.load(self.scores.buffer, self.scores.at(self.lanes, key, start))

    def _finish(self, rows: Rows) -> None:
        """Write out, divided by the sums, and lse."""
        lanes, blocks = self.lanes, self.blocks
        for start in blocks.lane_starts():
            top, total = self._get(self.top, start), self._get(self.total, start)
            divisor = lanes.instead(total, 0.0, 1.0)
            with blocks.loop(0, blocks.e) as e:
                at = self.out.at(lanes, e, start)
                lanes.store(arith.divf(lanes.load(self.out.buffer, at), divisor), self.out.buffer, at)
            lse = lanes.instead(arith.addf(math.log(total), top), -inf, blocks.spec.unseen_lse)
            self._put(self.top, start, lse)
        blocks.turn_back(self.out, "out", rows, blocks.e)
        blocks.turn_back(self.top, "lse", rows, 1)
