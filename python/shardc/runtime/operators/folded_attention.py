"""``shardc::folded_attention`` and its backward: causal attention whose rows are stored folded.

In a folded sequence of 2 n blocks, block w is followed by block 2 n - 1 - w, for w = 0 to n - 1. Split in n
parts, each part then sees equally many columns under a causal mask (zigzag ring attention, Zhu, 2024; after
Li et al., "DISTFLASHATTN", 2023). All operands and results are folded along their sequences. Shapes are those
of ``shardc::attention``, with Sq = Sk.

Rank programs use two calls of ``shardc::attention`` instead. The ops here define the semantics of the global
program.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .attention import attention, attention_backward
from .define import define, wide

SCHEMA = "(Tensor q, Tensor k, Tensor v, float scale, int ways) -> (Tensor out, Tensor lse)"
BACKWARD_SCHEMA = (
    "(Tensor grad_out, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, float scale, int ways) -> "
    "(Tensor dq, Tensor dk, Tensor dv)"
)


def folded(x: Tensor, ways: int) -> Tensor:
    """Fold the rows of a tensor [B, H, S, ...]."""
    first, second = x.unflatten(2, (2, ways, -1)).unbind(2)
    return torch.stack((first, second.flip(2)), 3).flatten(2, 4)


def in_order(x: Tensor, ways: int) -> Tensor:
    """Unfold the rows of a tensor: the inverse of :func:`folded`."""
    first, second = x.unflatten(2, (ways, 2, -1)).unbind(3)
    return torch.cat((first, second.flip(2)), 2).flatten(2, 3)


def folded_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, ways: int) -> tuple[Tensor, Tensor]:
    """Run ``shardc::folded_attention``. Raises ValueError for operands that do not fit."""
    q, k, v = (in_order(x, ways) for x in (q, k, v))
    out, lse = attention(q, k, v, None, True, scale)
    return folded(out, ways), folded(lse, ways)


def folded_attention_backward(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    ways: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run ``shardc::folded_attention_backward``."""
    grad_out, q, k, v, out, lse = (in_order(x, ways) for x in (grad_out, q, k, v, out, lse))
    dq, dk, dv = attention_backward(grad_out, q, k, v, None, out, lse, True, scale, 0)
    return folded(dq, ways), folded(dk, ways), folded(dv, ways)


def fake(q: Tensor, k: Tensor, v: Tensor, scale: float, ways: int) -> tuple[Tensor, Tensor]:
    """Return empty tensors with the shapes of out and lse."""
    return q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=wide(q.dtype))


def fake_backward(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    ways: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return empty tensors with the shapes of dq, dk and dv."""
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


define("folded_attention", SCHEMA, folded_attention, fake)
define("folded_attention_backward", BACKWARD_SCHEMA, folded_attention_backward, fake_backward)
