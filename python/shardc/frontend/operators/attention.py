"""Traces ``F.scaled_dot_product_attention`` as ``shardc::attention``, or as plain ops if necessary."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

import shardc.runtime.operators.attention  # noqa: F401  (registers shardc::attention)

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, bool, float], torch.Tensor]


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool, scale: float
) -> torch.Tensor:
    """Return the result of ``shardc::attention``."""
    return torch.ops.shardc.attention(q, k, v, mask, causal, scale)[0]


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    attend: Attend = attend,
) -> torch.Tensor:
    """Trace attention like torch's; query [..., H, Sq, D], key [..., Hkv, Sk, D], value [..., Hkv, Sk, Dv].

    Dropout of the probabilities and masks that need a gradient (a learned position bias) use plain ops; all
    other calls use ``attend`` on 4-D tensors. Autocast applies.
    """
    query, key, value = (_autocast(t) for t in (query, key, value))
    attn_mask = None if attn_mask is None else _autocast(attn_mask)
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    batch = query.shape[:-3] if query.dim() > 3 else query.shape[:-2]
    q, k, v = (_four_dims(t) for t in (query, key, value))
    mask = _mask_four_dims(attn_mask, query)
    k, v = (_broadcast_batch(t, q, enable_gqa) for t in (k, v))
    if dropout_p > 0.0 or (mask is not None and mask.requires_grad):
        out = _plain_attention(q, k, v, mask, dropout_p, is_causal, scale)
    else:
        out = attend(q, k, v, mask, is_causal, scale)
    return out if query.dim() == 4 else out.reshape(*batch, *out.shape[1 if query.dim() > 3 else 2 :])


def _autocast(tensor: torch.Tensor) -> torch.Tensor:
    """Cast to autocast's dtype for attention, if autocast is on."""
    device = tensor.device.type
    is_narrow = tensor.is_floating_point() and tensor.dtype != torch.float64
    is_cast = is_narrow and torch.is_autocast_enabled(device)
    return tensor.to(torch.get_autocast_dtype(device)) if is_cast else tensor


def _four_dims(tensor: torch.Tensor) -> torch.Tensor:
    """Reshape [..., S, D] to [B, H, S, D]; the heads of a 3-D tensor become its batch, with one head each."""
    if tensor.dim() == 4:
        return tensor
    if tensor.dim() > 4:
        return tensor.flatten(0, -4)
    return tensor[None, None] if tensor.dim() == 2 else tensor.unsqueeze(1)


def _mask_four_dims(mask: torch.Tensor | None, query: torch.Tensor) -> torch.Tensor | None:
    if mask is None or mask.dim() == 4 == query.dim():
        return mask
    if mask.dim() <= 2:
        return mask[(None,) * (4 - mask.dim())]
    if query.dim() <= 3:
        return mask.unsqueeze(1)
    return mask.expand(*query.shape[:-2], *mask.shape[-2:]).flatten(0, -4) if query.dim() > 4 else mask[None]


def _broadcast_batch(tensor: torch.Tensor, query: torch.Tensor, grouped: bool) -> torch.Tensor:
    heads = tensor.shape[1] if grouped else query.shape[1]
    if tensor.shape[:2] == (query.shape[0], heads):
        return tensor
    return tensor.expand(query.shape[0], heads, *tensor.shape[2:])


def _plain_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float,
) -> torch.Tensor:
    """Compute softmax(q k^T scale + mask) v in f32 or wider, as torch's math kernel does.

    Fully masked rows give 0.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    groups = q.shape[1] // k.shape[1]
    k, v = (_repeat_heads(t, groups).to(wide) for t in (k, v))
    scores = torch.matmul(q.to(wide) * scale, k.transpose(-2, -1))
    if is_causal:
        rows = torch.arange(scores.shape[-2], device=q.device).unsqueeze(-1)
        scores = scores.masked_fill(torch.arange(scores.shape[-1], device=q.device) > rows, -math.inf)
    empty_rows = None
    if mask is not None:
        is_bool = mask.dtype == torch.bool
        scores = scores.masked_fill(mask.logical_not(), -math.inf) if is_bool else scores + mask
        kept = mask if is_bool else mask.detach() > -math.inf
        empty_rows = kept.any(-1, keepdim=True).logical_not()
        scores = scores.masked_fill(empty_rows, 0.0)
    probabilities = torch.softmax(scores, -1)
    if empty_rows is not None:
        probabilities = probabilities.masked_fill(empty_rows, 0.0)
    return torch.matmul(torch.dropout(probabilities, dropout_p, True), v).to(q.dtype)


def _repeat_heads(tensor: torch.Tensor, groups: int) -> torch.Tensor:
    if groups == 1:
        return tensor
    batch, heads, length, dim = tensor.shape
    repeated = tensor.unsqueeze(2).expand(batch, heads, groups, length, dim)
    return repeated.reshape(batch, heads * groups, length, dim)
