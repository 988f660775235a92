"""Rules of ``shardc::attention`` and its backward.

Query heads are two factors: ``h`` key/value heads and the ``g`` query heads that share each of them
(grouped-query attention; g is 1 if every query head has its own). So an axis on ``h`` splits keys and values
too, and an axis on ``g`` leaves them whole. Rows ``q`` may be split; columns ``k`` may not, because the
softmax runs over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.rule import Dims, Local, Rule, rule_for

Q: Dims = (("b",), ("h", "g"), ("q",), ("d",))
K: Dims = (("b",), ("h",), ("k",), ("d",))
V: Dims = (("b",), ("h",), ("k",), ("e",))
OUT: Dims = (("b",), ("h", "g"), ("q",), ("e",))
LSE: Dims = OUT[:3]
SCORES: Dims = (("b",), ("h", "g"), ("q",), ("k",))
# lse, dq and dk lack the dim ``e`` and are not sums over it, so it stays whole, as do ``d`` and ``k``.
WHOLE = frozenset("kde")


def _sizes(call: OpCall) -> dict[str, int]:
    batch, heads, rows, depth = call["q"].shape
    _, kv_heads, columns, width = call["v"].shape
    groups = heads // kv_heads
    return {"b": batch, "h": kv_heads, "g": groups, "q": rows, "d": depth, "k": columns, "e": width}


def _mask(mask: TensorType | None) -> tuple[Dims, ...]:
    """Return the dims of the optional mask: those of the scores, except where it is broadcast."""
    if mask is None:
        return ()
    return (tuple(dim if size > 1 else () for dim, size in zip(SCORES, mask.shape, strict=True)),)


def _shifted(local: Local) -> Sequence[object]:
    """Call the operator with ``q_offset`` moved to this rank's first row, for the causal mask."""
    *args, q_offset = local.args
    return local.emit(local.spec.target, *args, local.offset("q", base=q_offset))


@rule_for("shardc.attention")
def attention(call: OpCall) -> Rule:
    """Rule of ``(q, k, v, mask) -> (out, lse)``."""
    operands = (Q, K, V, *_mask(call["mask"]))
    lower = _shifted if call["causal"] else None
    return Rule(operands, (OUT, LSE), _sizes(call), replicate=WHOLE, lower=lower)


@rule_for("shardc.attention_backward")
def attention_backward(call: OpCall) -> Rule:
    """Rule of ``(grad_out, q, k, v, mask, out, lse) -> (dq, dk, dv)``: dk, dv are sums over ``q`` and
    ``g``.
    """
    return Rule(
        (OUT, Q, K, V, *_mask(call["mask"]), OUT, LSE),
        (Q, K, V),
        _sizes(call),
        reduce={"g": "sum", "q": "sum"},
        replicate=WHOLE,
        linear=(frozenset({0}),),
        lower=_shifted if call["causal"] else None,
    )


FOLDED_Q, FOLDED_OUT, FOLDED_LSE = (
    tuple(("n", "r") if dim == ("q",) else dim for dim in dims) for dims in (Q, OUT, LSE)
)


def _folded_sizes(call: OpCall) -> dict[str, int]:
    sizes = _sizes(call)
    rows = sizes.pop("q")
    return {**sizes, "n": call["ways"], "r": rows // call["ways"]}


@dataclass(frozen=True)
class _Block:
    """A block of a rank's folded rows. A pair is a block, and the block at the same distance from the end."""

    local: Local
    pair: int
    is_last: bool

    @property
    def rows(self) -> int:
        return self.local.size("r") // 2

    def cut(self, value: object) -> Any:
        start = (2 * self.pair + self.is_last) * self.rows
        return self.local.emit("aten.slice.Tensor", value, 2, start, start + self.rows, 1)

    @property
    def seen(self) -> int:
        """The number of columns that some row of this block attends to, maximal over ranks."""
        columns = self.local.size("k")
        return columns if self.is_last else columns // 2

    def columns(self, value: object) -> Any:
        if self.seen == self.local.size("k"):
            return value
        return self.local.emit("aten.slice.Tensor", value, 2, 0, self.seen, 1)

    def padded(self, value: object) -> Any:
        """Return the gradient of all columns: zeros for those that no row attends to."""
        more = self.local.size("k") - self.seen
        return self.local.emit("aten.constant_pad_nd", value, (0, 0, 0, more), 0) if more else value

    @property
    def place(self) -> Any:
        """The position of the block's first row in the sequence."""
        if not self.is_last:
            return self.local.offset("n", scale=self.rows, base=self.pair * self.rows)
        last = self.local.size("k") - (self.pair + 1) * self.rows
        return self.local.offset("n", scale=-self.rows, base=last)


def _blocks(local: Local) -> list[_Block]:
    """Return a rank's blocks in the order of its rows; empty if one device has all rows."""
    pairs = range(local.size("n")) if local.ways("n") > 1 else ()
    return [_Block(local, pair, is_last) for pair in pairs for is_last in (False, True)]


def _in_order(local: Local, value: object, width: str) -> Any:
    """Return folded keys or values in sequence order. ``width`` is the factor of a head's elements."""
    ways, (b, h, s, d) = local.spec["ways"], (local.size(f) for f in ("b", "h", "k", width))
    blocks = local.emit("aten.reshape", value, (b, h, ways, 2, s // (2 * ways), d))
    first, last = (local.emit("aten.select.int", blocks, 3, n) for n in (0, 1))
    return local.emit(
        "aten.reshape", _joined(local, [first, local.emit("aten.flip", last, (2,))]), (b, h, s, d)
    )


def _folded(local: Local, value: object, width: str) -> Any:
    """Return keys or values in folded order: the inverse of :func:`_in_order`."""
    ways, (b, h, s, d) = local.spec["ways"], (local.size(f) for f in ("b", "h", "k", width))
    blocks = local.emit("aten.reshape", value, (b, h, 2, ways, s // (2 * ways), d))
    first, last = (local.emit("aten.select.int", blocks, 2, n) for n in (0, 1))
    pair = [local.emit("aten.unsqueeze", x, 3) for x in (first, local.emit("aten.flip", last, (2,)))]
    return local.emit("aten.reshape", local.emit("aten.cat", pair, 3), (b, h, s, d))


def _joined(local: Local, parts: Sequence[object]) -> Any:
    return local.emit("aten.cat", list(parts), 2)


def _folded_local(local: Local) -> Sequence[object]:
    q, k, v, scale, ways = local.args
    if not (blocks := _blocks(local)):
        return local.emit(local.spec.target, q, k, v, scale, ways)
    k, v = _in_order(local, k, "d"), _in_order(local, v, "e")
    made = []
    for block in blocks:
        operands = (block.cut(q), block.columns(k), block.columns(v), None)
        made.append(local.emit("shardc.attention", *operands, True, scale, block.place))
    return [_joined(local, parts) for parts in zip(*made, strict=True)]


def _folded_backward_local(local: Local) -> Sequence[object]:
    grad, q, k, v, out, lse, scale, ways = local.args
    if not (blocks := _blocks(local)):
        return local.emit(local.spec.target, grad, q, k, v, out, lse, scale, ways)
    k, v = _in_order(local, k, "d"), _in_order(local, v, "e")
    queries, sums = [], []
    for block in blocks:
        grad_of, q_of, out_of, lse_of = map(block.cut, (grad, q, out, lse))
        operands = (grad_of, q_of, block.columns(k), block.columns(v), None, out_of, lse_of)
        dq, *keys = local.emit("shardc.attention_backward", *operands, True, scale, block.place)
        queries.append(dq)
        sums.append([block.padded(key) for key in keys])
    dk, dv = (reduce(lambda a, b: local.emit("aten.add.Tensor", a, b, 1), x) for x in zip(*sums, strict=True))
    return [_joined(local, queries), _folded(local, dk, "d"), _folded(local, dv, "e")]


@rule_for("shardc.folded_attention")
def folded_attention(call: OpCall) -> Rule:
    """Rule of ``(q, k, v) -> (out, lse)``; pairs of blocks ``n`` may be split."""
    return Rule(
        (FOLDED_Q, K, V),
        (FOLDED_OUT, FOLDED_LSE),
        _folded_sizes(call),
        replicate=WHOLE | {"r"},
        lower=_folded_local,
        neutral={"n": None},
    )


@rule_for("shardc.folded_attention_backward")
def folded_attention_backward(call: OpCall) -> Rule:
    """Rule of ``(grad_out, q, k, v, out, lse) -> (dq, dk, dv)``; dk and dv are sums over ``n`` and ``g``."""
    return Rule(
        (FOLDED_OUT, FOLDED_Q, K, V, FOLDED_OUT, FOLDED_LSE),
        (FOLDED_Q, K, V),
        _folded_sizes(call),
        reduce={"g": "sum", "n": "sum"},
        replicate=WHOLE | {"r"},
        linear=(frozenset({0}),),
        lower=_folded_backward_local,
        neutral={"n": None},
    )
