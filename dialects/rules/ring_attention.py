"""Rules of ``shardc::ring_attention`` and its backward: keys and values move around the ring of ranks.

A rank computes with its own keys and values first, then with those of the previous rank, and so on; partial
outputs are merged by their lse (Liu et al., 2023).

On folded rows (zigzag), rank r has the blocks r and 2 n - 1 - r. Its last block attends to the first block of
any other rank. If the other rank is before it, its first block attends to the other's first block; else its
last block attends to the other's last block. So each rank computes two tiles a step, without a mask. If a
rank has several pairs, because another axis splits heads, all its first blocks form one block, and all its
last blocks another.

Gradients of keys and values move with them, and one rank further.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.rule import Dim, Dims, Local, Rule, emit_with, rule_for
from shardc.dialects.rules.spatial.neighbours import joined, part, shift

ROWS = 2
"""The dim of the sequence."""
UNSEEN = float("-inf")
"""The lse of rows whose keys are all hidden."""


def _sizes(call: OpCall) -> dict[str, int]:
    batch, heads, rows, depth = call["q"].shape
    kv_heads, width = call["v"].shape[1], call["v"].shape[3]
    sizes = {"b": batch, "h": kv_heads, "g": heads // kv_heads, "d": depth, "e": width}
    ways = call["ways"]
    return {**sizes, "n": ways, "r": rows // ways} if ways else {**sizes, "n": rows}


def _dims(call: OpCall) -> tuple[Dims, Dims, Dims, Dims, Dims]:
    """Return the dims of q, k, v, out and lse."""
    rows: Dim = ("n", "r") if call["ways"] else ("n",)
    batch, heads, keys = ("b",), ("h", "g"), ("h",)
    q, k, v = (batch, heads, rows, ("d",)), (batch, keys, rows, ("d",)), (batch, keys, rows, ("e",))
    out = (batch, heads, rows, ("e",))
    return q, k, v, out, out[:3]


@dataclass(frozen=True)
class _Ring:
    """Operations of one rank in the steps of the ring."""

    local: Local

    @property
    def ranks(self) -> int:
        return self.local.ways("n")

    @property
    def is_folded(self) -> bool:
        return self.local.spec["ways"] > 0

    @property
    def scale(self) -> float:
        return self.local.spec["scale"]

    @property
    def half(self) -> int:
        """The number of a rank's rows in the first half of the sequence."""
        return self.local.size("n") * self.local.size("r") // 2

    def halves(self, value: Any) -> list[Any]:
        """Return a rank's rows in each half of the sequence; all rows at once if they are not folded."""
        if not self.is_folded:
            return [value]
        return [part(self.local, value, ROWS, start, start + self.half) for start in (0, self.half)]

    def in_order(self, value: Any, shape: tuple[int, ...]) -> Any:
        """Reorder a rank's rows from pairs of blocks to sequence order: first blocks, then last blocks."""
        pairs = self.local.size("n") if self.is_folded else 1
        if pairs == 1:
            return value
        local, (before, after) = self.local, (shape[:ROWS], shape[ROWS + 1 :])
        blocks = local.emit("aten.reshape", value, (*before, pairs, 2, self.half // pairs, *after))
        first, last = (local.emit("aten.select.int", blocks, ROWS + 1, n) for n in (0, 1))
        last = local.emit("aten.flip", last, (ROWS,))
        return local.emit("aten.reshape", joined(local, [first, last], ROWS), shape)

    def by_pairs(self, value: Any, shape: tuple[int, ...]) -> Any:
        """Reorder a rank's rows from sequence order to pairs of blocks: the inverse of :meth:`in_order`."""
        pairs = self.local.size("n") if self.is_folded else 1
        if pairs == 1:
            return value
        local, (before, after) = self.local, (shape[:ROWS], shape[ROWS + 1 :])
        blocks = local.emit("aten.reshape", value, (*before, 2, pairs, self.half // pairs, *after))
        first, last = (local.emit("aten.select.int", blocks, ROWS, n) for n in (0, 1))
        last = local.emit("aten.flip", last, (ROWS,))
        apart = [local.emit("aten.unsqueeze", half, ROWS + 1) for half in (first, last)]
        return local.emit("aten.reshape", local.emit("aten.cat", tuple(apart), ROWS + 1), shape)

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Return the local shape of ``q``, ``k``, ``v``, ``out`` or ``lse``."""
        size = self.local.size
        rows = size("n") * (size("r") if self.is_folded else 1)
        heads = size("h") if tensor in ("k", "v") else size("h") * size("g")
        width = {"q": ("d",), "k": ("d",), "v": ("e",), "out": ("e",), "lse": ()}[tensor]
        return (size("b"), heads, rows, *map(size, width))

    def travelled(self, *values: Any) -> list[Any]:
        """Return the values of the previous rank."""
        return [shift(self.local, value, "n", 1) for value in values]

    def is_after(self, step: int) -> Any:
        """Return a scalar tensor: whether this rank is after the rank whose keys it holds at this step."""
        local = self.local
        place = local.emit("aten.scalar_tensor", local.offset("n"), torch.int64, None, None, None)
        return local.emit("aten.ge.Scalar", place, step * local.size("n"))

    def either(self, condition: Any, a: Any, b: Any) -> Any:
        return self.local.emit("aten.where.self", condition, a, b)

    def where(self, condition: Any, value: Any, number: float) -> Any:
        """Return ``value`` where the condition holds, else ``number``."""
        return self.local.emit("aten.where.ScalarOther", condition, value, number)

    def unless(self, condition: Any, value: Any, number: float) -> Any:
        """Return ``value`` where the condition does not hold, else ``number``."""
        return self.where(self.local.emit("aten.logical_not", condition), value, number)

    def added(self, a: Any, b: Any) -> Any:
        return self.local.emit("aten.add.Tensor", a, b, 1)


Partial = tuple[Any, Any]
"""Output (in the dtype of the lse) and lse over some of the columns."""


def _merged(local: Local, a: Partial, b: Partial) -> Partial:
    """Merge results over two sets of columns. Every row of ``a`` must have attended to some column."""
    lse = local.emit("aten.logaddexp", a[1], b[1])
    total = None
    for out, each in (a, b):
        weight = local.emit("aten.exp", local.emit("aten.sub.Tensor", each, lse, 1))
        term = local.emit("aten.mul.Tensor", out, local.emit("aten.unsqueeze", weight, 3))
        total = term if total is None else local.emit("aten.add.Tensor", total, term, 1)
    return total, lse


def _cast(local: Local, value: Any, dtype: torch.dtype) -> Any:
    return local.emit("aten._to_copy", value, dtype, None, None, None, False, None)


def _attended(ring: _Ring, q: Any, k: Any, v: Any, causal: bool = False) -> Partial:
    out, lse = ring.local.emit("shardc.attention", q, k, v, None, causal, ring.scale, 0)
    out_type, lse_type = ring.local.results
    assert isinstance(out_type, TensorType) and isinstance(lse_type, TensorType)
    return (out if out_type.dtype == lse_type.dtype else _cast(ring.local, out, lse_type.dtype)), lse


def _local_ring(local: Local) -> Sequence[Any]:
    ring = _Ring(local)
    if ring.ranks == 1:
        return emit_with(local)
    q, k, v = (ring.in_order(x, ring.shape(name)) for x, name in zip(local.args, "qkv", strict=False))
    queries = ring.halves(q)
    own = _attended(ring, q, k, v, causal=ring.is_folded)
    found = list(zip(*map(ring.halves, own), strict=True))
    for step in range(1, ring.ranks):
        k, v = ring.travelled(k, v)
        found = _step(ring, step, queries, found, k, v)
    out, lse = (joined(local, list(parts), ROWS) for parts in zip(*found, strict=True))
    out_type, lse_type = local.results
    assert isinstance(out_type, TensorType) and isinstance(lse_type, TensorType)
    out = out if out_type.dtype == lse_type.dtype else _cast(local, out, out_type.dtype)
    return [ring.by_pairs(out, ring.shape("out")), ring.by_pairs(lse, ring.shape("lse"))]


def _step(ring: _Ring, step: int, queries: list[Any], found: list[Partial], k: Any, v: Any) -> list[Partial]:
    """Merge the results so far with those over another rank's columns."""
    local = ring.local
    if not ring.is_folded:
        return [_merged(local, found[0], _attended(ring, queries[0], k, v))]
    first, last = found
    keys, values = ring.halves(k), ring.halves(v)
    last = _merged(local, last, _attended(ring, queries[1], keys[0], values[0]))
    after = ring.is_after(step)
    out, lse = _attended(ring, *(ring.either(after, a, b) for a, b in (queries, keys, values)))
    first = _merged(local, first, (out, ring.where(after, lse, UNSEEN)))
    last = _merged(local, last, (out, ring.unless(after, lse, UNSEEN)))
    return [first, last]


def _local_backward(local: Local) -> Sequence[Any]:
    ring = _Ring(local)
    if ring.ranks == 1:
        return emit_with(local)
    names = ("out", "q", "k", "v", "out", "lse")
    given = (ring.in_order(x, ring.shape(name)) for x, name in zip(local.args, names, strict=False))
    grad, q, k, v, out, lse = given
    rows = list(zip(*(ring.halves(x) for x in (grad, q, out, lse)), strict=True))
    dq, *own = _differentiated(ring, (grad, q, out, lse), k, v, causal=ring.is_folded)
    queries, sums = ring.halves(dq), None
    for step in range(1, ring.ranks):
        k, v = ring.travelled(k, v)
        before = None if sums is None else ring.travelled(*sums)
        queries, made = _backward_step(ring, step, rows, queries, k, v)
        sums = made if before is None else [ring.added(a, b) for a, b in zip(before, made, strict=True)]
    assert sums is not None
    keys = [ring.added(a, b) for a, b in zip(own, ring.travelled(*sums), strict=True)]
    made = zip((joined(local, queries, ROWS), *keys), ("q", "k", "v"), strict=True)
    return [ring.by_pairs(value, ring.shape(name)) for value, name in made]


def _differentiated(ring: _Ring, rows: Sequence[Any], k: Any, v: Any, causal: bool = False) -> list[Any]:
    """Return dq, dk and dv of some rows (grad, q, out, lse) and some columns."""
    grad, q, out, lse = rows
    operands = grad, q, k, v, None, out, lse, causal, ring.scale, 0
    return list(ring.local.emit("shardc.attention_backward", *operands))


def _backward_step(
    ring: _Ring, step: int, rows: list[Any], queries: list[Any], k: Any, v: Any
) -> tuple[list[Any], list[Any]]:
    """Return the gradients of queries so far, and the gradients of another rank's keys and values."""
    if not ring.is_folded:
        dq, *keys = _differentiated(ring, rows[0], k, v)
        return [ring.added(queries[0], dq)], keys
    first, last = rows
    columns = list(zip(ring.halves(k), ring.halves(v), strict=True))
    dq, *seen = _differentiated(ring, last, *columns[0])
    after = ring.is_after(step)
    chosen = [ring.either(after, a, b) for a, b in zip(first, last, strict=True)]
    dq_other, *other = _differentiated(
        ring, chosen, *(ring.either(after, a, b) for a, b in zip(*columns, strict=True))
    )
    queries = [
        ring.added(queries[0], ring.where(after, dq_other, 0)),
        ring.added(ring.added(queries[1], dq), ring.unless(after, dq_other, 0)),
    ]
    return queries, list(_columns(ring, after, seen, other))


def _columns(ring: _Ring, after: Any, seen: list[Any], other: list[Any]) -> Iterator[Any]:
    """Yield dk and dv of a pair of blocks.

    ``seen`` are gradients of the first block from the last rows; ``other`` are added to the first block if
    ``after``, else to the last.
    """
    for a, b in zip(seen, other, strict=True):
        first = ring.added(a, ring.where(after, b, 0))
        yield joined(ring.local, [first, ring.unless(after, b, 0)], ROWS)


WHOLE = frozenset("der")


@rule_for("shardc.ring_attention")
def ring_attention(call: OpCall) -> Rule:
    """Rule of ``(q, k, v) -> (out, lse)``; rows and columns are split together."""
    q, k, v, out, lse = _dims(call)
    sizes = _sizes(call)
    return Rule(
        (q, k, v),
        (out, lse),
        sizes,
        replicate=WHOLE & sizes.keys(),
        lower=_local_ring,
        traded=frozenset("n"),
        trades_in_loops=True,
    )


@rule_for("shardc.ring_attention_backward")
def ring_attention_backward(call: OpCall) -> Rule:
    """Rule of ``(grad_out, q, k, v, out, lse) -> (dq, dk, dv)``; dk and dv are sums over ``g``."""
    q, k, v, out, lse = _dims(call)
    sizes = _sizes(call)
    return Rule(
        (out, q, k, v, out, lse),
        (q, k, v),
        sizes,
        reduce={"g": "sum"},
        replicate=WHOLE & sizes.keys(),
        linear=(frozenset({0}),),
        lower=_local_backward,
        traded=frozenset("n"),
        trades_in_loops=True,
    )
