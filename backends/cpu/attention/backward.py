"""``kern.attention_backward`` as loops, with recomputed probabilities (FlashAttention, Dao et al., 2022, B).

A thread takes all keys of a head or, if there are more threads than heads, every n-th block of them. So dk
and dv are the thread's own sums over all queries of the group, with head sizes in lanes. Parts of dq are
added at the end.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from torch_mlir import ir
from torch_mlir.dialects import arith, math, scf

from shardc.backends.body.handlers import handles
from shardc.backends.body.structured import Structured
from shardc.backends.cpu.attention.mask import seen_blocks
from shardc.backends.cpu.attention.shared import Blocks, Keys, Rows
from shardc.backends.cpu.emit.buffers import Emitted
from shardc.backends.cpu.emit.loops import barrier, carrying_loop, when
from shardc.backends.cpu.lanes.lanes import Matrix
from shardc.dialects.kern.attention_backward import AttentionBackwardOp
from shardc.dialects.kern.attention_maps import read_attention
from shardc.dialects.kern.size import hint

INPUTS = ["grad_out", "q", "k", "v", "out", "lse", "mask"]


@handles(AttentionBackwardOp)
def emit_backward(body: Structured, module: ir.Module) -> Emitted:
    """Add the function of a ``kern.attention_backward`` to ``module``."""
    spec = read_attention(body.op, body.shapes)
    blocks = Blocks(body, spec, INPUTS, ["dq", "dk", "dv"], module)
    with ir.InsertionPoint(blocks.block):
        backward = _Backward(blocks)
        backward.emit()
    return blocks.finish(backward.heads * backward.most_parts, 5)


class _Backward:
    def __init__(self, blocks: Blocks) -> None:
        self.blocks, self.lanes = blocks, blocks.lanes
        sizes, queries, keys, d, e = blocks.sizes, blocks.queries, blocks.keys, blocks.d, blocks.e
        d_lanes, e_lanes = (-(-size // blocks.lanes.width) * blocks.lanes.width for size in (d, e))
        self.turned_q, self.turned_grad = blocks.buffer(d, queries), blocks.buffer(e, queries)
        self.q, self.grad = blocks.buffer(queries, d_lanes), blocks.buffer(queries, e_lanes)
        self.weights, self.slopes = blocks.buffer(keys, queries), blocks.buffer(keys, queries)
        self.dq = blocks.buffer(d, queries)
        self.dk, self.dv = blocks.buffer(sizes["n"], d_lanes), blocks.buffer(sizes["n"], e_lanes)
        self.lse, self.delta = blocks.buffer(1, queries), blocks.buffer(1, queries)
        self.wide_k, self.wide_v = blocks.wide(d), blocks.wide(e)
        self.heads = sizes["b"] * blocks.spec.kv_heads
        most = min(blocks.config.key_parts, -(-blocks.config.heads // max(1, hint(self.heads))))
        self.most_parts = max(1, min(most, -(-hint(sizes["n"]) // keys)))
        self.parts = self._parts()
        self.shared_dq = None
        if self.most_parts > 1:
            elements = self.most_parts * sizes["b"] * sizes["h"] * blocks.padded_rows * d
            self.shared_dq = replace(blocks.buffer(elements, 1, "shared"), row_stride=queries)

    def _parts(self) -> ir.Value:
        """Return the number of parts of a head's keys: as many as give each thread one, up to the limit."""
        heads = arith.maxui(self.lanes.index(self.heads), self.lanes.index(1))
        wanted = arith.ceildivui(self.blocks.threads, heads)
        return arith.minui(wanted, self.lanes.index(self.most_parts))

    def emit(self) -> None:
        blocks, lanes, kv_heads = self.blocks, self.lanes, self.blocks.spec.kv_heads
        units = arith.muli(self.parts, lanes.index(self.heads))
        with blocks.loop(blocks.thread, units, blocks.threads) as unit:
            head, part = arith.divui(unit, self.parts), arith.remui(unit, self.parts)
            b, kv_head = (op(head, lanes.index(kv_heads)) for op in (arith.divui, arith.remui))
            self._head(b, kv_head, part)
        if self.shared_dq is None:
            return
        with when(arith.cmpi(arith.CmpIPredicate.ugt, self.parts, lanes.index(1))):
            barrier()
            with blocks.loop(blocks.thread, blocks.row_blocks, blocks.threads) as number:
                self._join(number)

    def _head(self, b: ir.Value, kv_head: ir.Value, part: ir.Value) -> None:
        """Process a part of one head's keys, with all queries of its group."""
        blocks, sizes, group = self.blocks, self.blocks.sizes, self.blocks.spec.group
        with blocks.key_blocks(sizes["n"], part, self.parts) as keys:
            for into in (self.dk, self.dv):
                blocks.clear(self._block(into, keys), keys.count)
        with blocks.loop(0, group) as g:
            head = self.lanes.sum((kv_head, group), g)
            with blocks.loop(0, blocks.blocks) as number:
                self._rows(blocks.rows(b, head, number), part, number)
        with blocks.key_blocks(sizes["n"], part, self.parts) as keys:
            for role, source, columns in (("dk", self.dk, blocks.d), ("dv", self.dv, blocks.e)):
                block = self._block(source, keys)
                blocks.copy(block, keys.count, columns, blocks.tensor(role, b, kv_head, keys.first))

    def _block(self, sums: Matrix, keys: Keys) -> Matrix:
        return replace(sums, start=self.lanes.sum((keys.first, sums.row_stride)))

    def _rows(self, rows: Rows, part: ir.Value, number: ir.Value) -> None:
        """Process block number ``number`` of a head's queries, with a part of the keys."""
        blocks, d, e, scale = self.blocks, self.blocks.d, self.blocks.e, self.blocks.spec.scale
        read = (("q", d, self.turned_q, self.q, scale), ("grad_out", e, self.turned_grad, self.grad, 1.0))
        for role, columns, turned, plain, by in read:
            blocks.turn(role, rows, columns, turned, by)
            blocks.clear(plain, blocks.queries)
            blocks.copy(blocks.tensor(role, rows.b, rows.h, rows.first), rows.count, columns, plain, by)
        self._of_rows(rows)
        blocks.clear(self.dq, d)
        with seen_blocks(blocks, rows, self.weights, part, self.parts) as keys:
            self._keys(rows, keys)
        if self.shared_dq is None:
            self._write_dq(rows)
            return
        alone = arith.cmpi(arith.CmpIPredicate.eq, self.parts, self.lanes.index(1))
        with when(alone):
            self._write_dq(rows)
        with when(arith.xori(alone, arith.constant(alone.type, 1))):
            lanes, head = self.lanes, self.lanes.sum((rows.b, blocks.sizes["h"]), rows.h)
            mine = self._shared_block(part, lanes.sum((head, blocks.blocks), number))
            with blocks.loop(0, d * blocks.queries, lanes.width) as p:
                lanes.store(lanes.load(self.dq.buffer, p), mine.buffer, lanes.sum(mine.start, p))

    def _shared_block(self, part: ir.Value, number: ir.Value) -> Matrix:
        """Return a part's contribution to dq of a block of queries. ``number``: its number over all heads."""
        assert self.shared_dq is not None
        rows = self.lanes.sum((part, self.blocks.row_blocks), number)
        return replace(self.shared_dq, start=self.lanes.sum((rows, self.blocks.d * self.blocks.queries)))

    def _join(self, number: ir.Value) -> None:
        """Sum the parts' contributions to dq of a block of queries."""
        blocks, lanes, heads = self.blocks, self.lanes, self.blocks.sizes["h"]
        blocks.clear(self.dq, blocks.d)
        with blocks.loop(0, self.parts) as part:
            source = self._shared_block(part, number)
            with blocks.loop(0, blocks.d * blocks.queries, lanes.width) as p:
                added = lanes.load(source.buffer, lanes.sum(source.start, p))
                lanes.store(arith.addf(lanes.load(self.dq.buffer, p), added), self.dq.buffer, p)
        head, block = (op(number, lanes.index(blocks.blocks)) for op in (arith.divui, arith.remui))
        b, h = (op(head, lanes.index(heads)) for op in (arith.divui, arith.remui))
        self._write_dq(blocks.rows(b, h, block))

    def _write_dq(self, rows: Rows) -> None:
        blocks, lanes = self.blocks, self.lanes
        with blocks.loop(0, blocks.d * blocks.queries, lanes.width) as p:
            scaled = arith.mulf(lanes.load(self.dq.buffer, p), lanes.splat(blocks.spec.scale))
            lanes.store(scaled, self.dq.buffer, p)
        blocks.turn_back(self.dq, "dq", rows, blocks.d)

    def _of_rows(self, rows: Rows) -> None:
        """Read lse of each query (infinite if it sees nothing); compute delta, the sum of grad_out * out."""
        blocks, lanes = self.blocks, self.lanes
        blocks.clear(self.delta, 1)
        for start in blocks.lane_starts():
            lanes.store(lanes.splat(inf), self.lse.buffer, lanes.index(start))
        source, out = (blocks.tensor(role, rows.b, rows.h, rows.first) for role in ("lse", "out"))
        zero = arith.constant(lanes.float, 0.0)
        with blocks.loop(0, rows.count) as r:
            lanes.put(lanes.scalar(source.buffer, source.at(lanes, r, 0)), self.lse.buffer, r)
            with carrying_loop(lanes.elements, 0, blocks.e, [zero]) as (at, loop):
                grad = lanes.scalar(self.grad.buffer, self.grad.at(lanes, r, at))
                term = arith.mulf(grad, lanes.scalar(out.buffer, out.at(lanes, r, at)))
                scf.YieldOp([arith.addf(loop.inner_iter_args[0], term, fastmath=arith.FastMathFlags.reassoc)])
            lanes.put(loop.results[0], self.delta.buffer, r)
        for start in blocks.lane_starts():
            at = lanes.index(start)
            lanes.store(lanes.instead(lanes.load(self.lse.buffer, at), -inf, inf), self.lse.buffer, at)

    def _keys(self, rows: Rows, keys: Keys) -> None:
        blocks = self.blocks
        k, v = blocks.operand("k", rows, keys, self.wide_k), blocks.operand("v", rows, keys, self.wide_v)
        blocks.score(k, self.turned_q, rows, keys, self.weights)
        blocks.product(v, self.turned_grad, self.slopes, keys.count, blocks.e, blocks.zero)
        self._probabilities(keys)
        for left, right, into in ((self.weights, self.grad, self.dv), (self.slopes, self.q, self.dk)):
            block = self._block(into, keys)
            blocks.product(left, right, block, keys.count, blocks.queries, blocks.kept(into))
        blocks.product(k.across, self.slopes, self.dq, blocks.d, keys.count, blocks.kept(self.dq))

    def _probabilities(self, keys: Keys) -> None:
        """Turn scores into probabilities, and slopes into the gradients of scores."""
        lanes, starts = self.lanes, list(self.blocks.lane_starts())
        rows = self.lse.buffer, self.delta.buffer
        lse, delta = ([lanes.load(row, lanes.index(start)) for start in starts] for row in rows)
        with self.blocks.loop(0, keys.count) as n:
            for start, row_lse, row_delta in zip(starts, lse, delta, strict=True):
                at = self.weights.at(lanes, n, start)
                weight = math.exp(arith.subf(lanes.load(self.weights.buffer, at), row_lse))
                slope = arith.mulf(weight, arith.subf(lanes.load(self.slopes.buffer, at), row_delta))
                lanes.store(weight, self.weights.buffer, at)
                lanes.store(slope, self.slopes.buffer, at)
