"""Gradient clipping by the global 2-norm, in ops that shard: one partial sum a parameter, added up."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def clip_by_global_norm(
    grads: Mapping[str, torch.Tensor | None], max_norm: float
) -> dict[str, torch.Tensor | None]:
    """Scales all gradients by min(1, max_norm / (norm + 1e-6)), as ``torch.nn.utils.clip_grad_norm_`` does.

    Squares are summed in f32 or wider. The scalars are added one to the next, not stacked, so that sums that
    are partial on the same mesh axes stay partial until the one reduction at the end.
    """
    total: torch.Tensor | None = None
    for grad in grads.values():
        if grad is not None:
            wide = grad.to(torch.promote_types(grad.dtype, torch.float32))
            square = (wide * wide).sum()
            total = square if total is None else total + square
    if total is None:
        return dict(grads)
    scale = (max_norm / (total.sqrt() + 1e-6)).clamp(max=1.0)
    return {name: None if grad is None else (grad * scale).to(grad.dtype) for name, grad in grads.items()}
