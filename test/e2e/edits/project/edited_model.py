"""The model of the script that ``test_edits.py`` edits."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from edited_helper import centered, rescaled, smooth
from edited_settings import Settings
from torch import Tensor, nn
from torch.nn import functional as F

TEMPERATURE = 4.0
TABLE = {"gain": 1.5, "unread": 1.0}
POWERS = [1, 2]
OFFSETS = torch.tensor([0.0, 0.1, -0.1, 0.2, 0.0, 0.3, 0.0, 0.1])
SHARED = torch.tensor(0.75)
ORDER = torch.tensor([1, 0, 2, 3, 4, 5, 6, 7])
CLIP: float | None = None
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "tanh": torch.tanh, "smooth": smooth}


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grads[0] * 2.0 + 0.0 * x


def scaled_by(factor: float, power: int = 1) -> Callable[[Tensor], Tensor]:
    def scaled(x: Tensor) -> Tensor:
        return factor * x**power

    return scaled


class Block(nn.Module):
    slope = 0.2

    def __init__(self, settings: Settings, gate: float, factor: float = 0.9) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.width, eps=settings.eps)
        self.up = nn.Linear(settings.width, settings.hidden, bias=settings.bias)
        self.down = nn.Linear(settings.hidden, settings.width, bias=settings.bias)
        self.dropout = nn.Dropout(settings.dropout)
        self.activation = ACTIVATIONS[settings.activation]
        self.gate = gate
        self.scaled = scaled_by(factor)
        self.limits = [-3.0, 3.0]
        self.register_buffer("shift", torch.linspace(0, 1, settings.width))

    def forward(self, x: Tensor, residual: float = 1.0) -> Tensor:
        hidden = self.activation(self.up(self.norm(x)))
        hidden = hidden.clamp(*self.limits)
        return residual * x + self.gate * self.scaled(self.mixed(self.down(self.dropout(hidden))))

    def mixed(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.slope) + self.shift


class Net(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        gates = settings.gates[: settings.blocks]
        self.blocks = nn.ModuleList([Block(settings, gate) for gate in gates])
        self.first = nn.Linear(settings.width, settings.width)
        self.head = self.first if settings.tied else nn.Linear(settings.width, settings.width)
        self.scale = nn.Parameter(torch.ones(settings.width))
        self.register_buffer("seen", torch.zeros(()))
        self.extra: Callable[[Tensor], Tensor] = lambda x: x * 0.8

    def forward(self, input: Tensor, target: Tensor | None = None) -> Tensor:
        x = self.first(input) + OFFSETS
        for block in self.blocks:
            x = block(x)
        x = Doubled.apply(centered(x)) * TABLE["gain"]
        if os.environ.get("EDITED_STYLE", "plain") == "odd":
            x = x.sin()
        if CLIP is not None:
            x = x.clamp(-CLIP, CLIP)
        self.seen += 1.0
        x = rescaled(x)[:, ORDER] * SHARED + sum(x**power for power in POWERS)
        return self.head(self.extra(x) * self.scale / TEMPERATURE)
