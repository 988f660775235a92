"""A layer that takes known times: an operator that sleeps and passes its input on, with gradients that sleep
too.

It needs torch alone; the sharding rules are registered by :func:`register_rules`.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn


@torch.library.custom_op("shardc_bench::forward", mutates_args=())
def forward(x: Tensor, weight: Tensor, seconds: float) -> Tensor:
    """``x * weight`` after ``seconds``; x is [rows, d], weight [d]."""
    time.sleep(seconds)
    return x * weight


@torch.library.custom_op("shardc_bench::input_gradient", mutates_args=())
def input_gradient(grad: Tensor, weight: Tensor, seconds: float) -> Tensor:
    time.sleep(seconds)
    return grad * weight


@torch.library.custom_op("shardc_bench::weight_gradient", mutates_args=())
def weight_gradient(grad: Tensor, x: Tensor, seconds: float) -> Tensor:
    time.sleep(seconds)
    return (grad * x).sum(0)


for _like_first in (forward, input_gradient):
    _like_first.register_fake(lambda first, *rest: torch.empty_like(first))
weight_gradient.register_fake(lambda grad, x, seconds: x.new_empty(x.shape[1]))


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.seconds = inputs[2]


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    x, weight = ctx.saved_tensors
    return input_gradient(grad, weight, ctx.seconds), weight_gradient(grad, x, ctx.seconds), None


forward.register_autograd(_gradients, setup_context=_save)


class Sleeper(nn.Module):
    """``layers`` layers; forward, input gradient and weight gradient of each take ``seconds``."""

    def __init__(self, layers: int, width: int, seconds: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, seconds) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Layer(nn.Module):
    def __init__(self, width: int, seconds: float) -> None:
        super().__init__()
        self.weight, self.seconds = nn.Parameter(torch.ones(width)), seconds

    def forward(self, x: Tensor) -> Tensor:
        return forward(x, self.weight, self.seconds)


def register_rules() -> None:
    """How the operators are cut: along rows."""
    import shardc

    x, weight = torch.randn(4, 6), torch.randn(6)
    for name, operands, text in (
        ("forward", (x, weight), "([r,d],[d])->([r,d])"),
        ("input_gradient", (x, weight), "([r,d],[d])->([r,d])"),
        ("weight_gradient", (x, x), "([r,d],[r,d])->([d]) reduce={r}"),
    ):
        shardc.rule(f"shardc_bench::{name}", samples=[(*operands, 1e-6)])(lambda call, text=text: text)
