"""Two custom operators and their gradients, registered as a user's library would: it needs torch alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("shardc_e2e::row_norm", mutates_args=())
def row_norm(x: Tensor, eps: float) -> Tensor:
    """Rows of ``x`` [..., d] divided by their length."""
    return x / (x.square().sum(-1, keepdim=True) + eps).sqrt()


@torch.library.custom_op("shardc_e2e::row_norm_backward", mutates_args=())
def row_norm_backward(grad: Tensor, x: Tensor, eps: float) -> Tensor:
    square = x.square().sum(-1, keepdim=True) + eps
    return grad / square.sqrt() - x * (grad * x).sum(-1, keepdim=True) / square**1.5


@torch.library.custom_op("shardc_e2e::scaled_add", mutates_args=())
def scaled_add(x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
    """``x + scale * y``; ``scale`` [d] is for each column."""
    return x + scale * y


@torch.library.custom_op("shardc_e2e::scaled_add_backward", mutates_args=())
def scaled_add_backward(grad: Tensor, y: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    return grad * scale, (grad * y).flatten(0, -2).sum(0)


@row_norm.register_fake
def _(x: Tensor, eps: float) -> Tensor:
    return torch.empty_like(x)


@row_norm_backward.register_fake
def _(grad: Tensor, x: Tensor, eps: float) -> Tensor:
    return torch.empty_like(x)


@scaled_add.register_fake
def _(x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
    return torch.empty_like(x)


@scaled_add_backward.register_fake
def _(grad: Tensor, y: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(y), torch.empty_like(scale)


def _save_row(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.eps = inputs[1]


def _row_norm_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return row_norm_backward(grad, ctx.saved_tensors[0], ctx.eps), None


def _save_sum(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1], inputs[2])


def _scaled_add_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return grad, *scaled_add_backward(grad, *ctx.saved_tensors)


row_norm.register_autograd(_row_norm_gradient, setup_context=_save_row)
scaled_add.register_autograd(_scaled_add_gradient, setup_context=_save_sum)
