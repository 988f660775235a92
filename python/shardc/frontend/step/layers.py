"""Functions that torch has kernels of their own for, as ops that sharding rules know."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from shardc.runtime import torch_private

Tensor = torch.Tensor


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """An embedding and a sum over each bag, as torch's: [bags, d] of [bags, n], or of [n] and ``offsets``.

    ``max_norm``, which writes to the weight, and the largest of bags given by offsets are left to torch.
    """
    if max_norm is not None or (offsets is not None and mode == "max"):
        return F.embedding_bag(
            input,
            weight,
            offsets,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            per_sample_weights,
            include_last_offset,
            padding_idx,
        )
    rows = F.embedding(input, weight, padding_idx, None, norm_type, scale_grad_by_freq, False)
    every = torch.ones_like(input, dtype=torch.bool)
    kept = every if padding_idx is None else input != padding_idx % len(weight)
    if mode == "max":
        largest = rows.masked_fill(~kept.unsqueeze(-1), -torch.inf).amax(1)
        return torch.where(kept.any(1, keepdim=True), largest, 0.0)
    shares = kept.to(rows.dtype) if per_sample_weights is None else kept * per_sample_weights
    rows = rows * shares.unsqueeze(-1)
    if offsets is None:
        total, count = rows.sum(1), kept.sum(1)
    else:
        bags = offsets[:-1] if include_last_offset else offsets
        place = torch.arange(len(input), device=input.device).unsqueeze(1)
        bag = (place >= bags).sum(1) - 1
        total = rows.new_zeros(len(bags), rows.shape[1]).index_add(0, bag, rows)
        count = torch.zeros_like(bags).index_add(0, bag, kept.to(bags.dtype))
    return total / count.clamp(min=1).unsqueeze(1) if mode == "mean" else total


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """``v`` with length ``g`` along all dims but ``dim``; all of them for -1."""
    dims = [d for d in range(v.dim()) if d != dim]
    return v * (g / v.square().sum(dims, keepdim=dim != -1).sqrt())


LAYERS: dict[Callable[..., object], Callable[..., Tensor]] = {
    F.embedding_bag: embedding_bag,
    torch_private.weight_norm: weight_norm,
}
