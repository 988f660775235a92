"""The global norm of a step's gradients, and clipping by it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

Gradients = Mapping[str, torch.Tensor | None]


def global_norm(grads: Gradients) -> torch.Tensor | None:
    """Return the 2-norm of all gradients together, 0-d, in f32 or wider; None without gradients.

    The scalars are added one by one instead of stacked, so that sums that are partial over the same mesh axes
    stay partial until one final reduction.
    """
    total: torch.Tensor | None = None
    for grad in grads.values():
        if grad is not None:
            wide = grad.to(torch.promote_types(grad.dtype, torch.float32))
            wide = wide.abs() if wide.is_complex() else wide
            square = (wide * wide).sum()
            total = square if total is None else total + square
    return None if total is None else total.sqrt()


def clip(grads: Gradients, norm: torch.Tensor, max_norm: float) -> Gradients:
    """Scale all gradients by min(1, max_norm / (norm + 1e-6)), as ``clip_grad_norm_`` does."""
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    return {name: None if grad is None else (grad * scale).to(grad.dtype) for name, grad in grads.items()}
