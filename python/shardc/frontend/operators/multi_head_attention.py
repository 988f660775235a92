"""``torch.nn.MultiheadAttention`` with the batch dim before the positions.

PyTorch puts positions first and merges both into rows. The batch is then the inner part of a row's number,
which cannot be sharded, so devices and micro-batches would wait for each other.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = tuple[Tensor, Tensor | None]


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None] | None:
    """Trace :func:`torch.nn.functional.multi_head_attention_forward` with the batch dim first.

    query [t, b, e] and key, value [s, b, *] give [t, b, e], and weights [b, t, s], or [b, heads, t, s] if not
    averaged. None, which leaves the call to torch, without a batch dim, for added or fixed keys, and for
    invalid arguments.
    """
    rare = (bias_k, bias_v, static_k, static_v)
    is_wrong = query.dim() != 3 or query.shape[-1] != embed_dim_to_check or (is_causal and attn_mask is None)
    if is_wrong or add_zero_attn or any(tensor is not None for tensor in rare):
        return None
    if use_separate_proj_weight:
        biases = [None] * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
        pairs = ((query, q_proj_weight), (key, k_proj_weight), (value, v_proj_weight))
        parts = [
            F.linear(x.transpose(0, 1), weight, bias)
            for (x, weight), bias in zip(pairs, biases, strict=True)
            if weight is not None
        ]
    else:
        assert in_proj_weight is not None
        parts = _projected(query, key, value, (in_proj_weight, in_proj_bias))
    q, k, v = (part.unflatten(-1, (num_heads, -1)).transpose(1, 2) for part in parts)
    mask = _mask(q, k, attn_mask, key_padding_mask)
    dropout_p = dropout_p if training else 0.0
    weights = None
    if need_weights:
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        weights = (scores if mask is None else scores + mask).softmax(-1)
        weights = F.dropout(weights, dropout_p) if dropout_p else weights
        made = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    elif is_causal and key_padding_mask is None:
        made = F.scaled_dot_product_attention(q, k, v, None, dropout_p, is_causal=True)
    else:
        made = F.scaled_dot_product_attention(q, k, v, mask, dropout_p)
    made = F.linear(made.transpose(1, 2).flatten(2), out_proj_weight, out_proj_bias)
    return made.transpose(0, 1), weights


def _projected(query: Tensor, key: Tensor, value: Tensor, packed: Weights) -> list[Tensor]:
    """Return queries, keys and values [b, t, e]; one matmul computes them if they share an input."""
    if query is key and key is value:
        return list(F.linear(query.transpose(0, 1), *packed).chunk(3, -1))
    weight, bias = packed
    rows = len(weight) // 3

    def part(x: Tensor, first: int, last: int) -> Tensor:
        own = slice(first * rows, last * rows)
        return F.linear(x.transpose(0, 1), weight[own], None if bias is None else bias[own])

    if key is value:
        return [part(query, 0, 1), *part(key, 1, 3).chunk(2, -1)]
    return [part(query, 0, 1), part(key, 1, 2), part(value, 2, 3)]


def _mask(q: Tensor, k: Tensor, attn_mask: Tensor | None, padding: Tensor | None) -> Tensor | None:
    """Return the term added to scores [b, heads, t, s]; True in a mask means forbidden."""
    batch, heads, length, _ = q.shape
    found = None
    if attn_mask is not None:
        found = _added(attn_mask, q.dtype)
        found = found.view(batch, heads, length, k.shape[-2]) if found.dim() == 3 else found
    if padding is not None:
        of_keys = _added(padding, q.dtype)[:, None, None, :]
        found = of_keys if found is None else found + of_keys
    return found


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -torch.inf)
