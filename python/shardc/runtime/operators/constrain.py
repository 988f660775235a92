"""``shardc::constrain``: a tensor with the layout that a plan requires for it."""

from __future__ import annotations

from typing import Any

import torch

from .define import define

SCHEMA = "(Tensor x, str layout) -> Tensor"


def _constrain(x: torch.Tensor, layout: str) -> torch.Tensor:
    return x.clone()


def _fake(x: torch.Tensor, layout: str) -> torch.Tensor:
    return torch.empty_like(x)


def _setup_context(ctx: Any, inputs: tuple[torch.Tensor, str], output: torch.Tensor) -> None:
    ctx.layout = inputs[1]


def _autograd(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    """Constrain the gradient to the tensor's layout."""
    return torch.ops.shardc.constrain(grad, ctx.layout), None


if define("constrain", SCHEMA, _constrain, _fake):
    torch.library.register_autograd("shardc::constrain", _autograd, setup_context=_setup_context)
