"""A layer as Megatron computes it (Korthikanti et al. 2022, section 4), and stacks of it."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

Again = Literal["nothing", "attention", "layers"]
"""What is computed again in backward: selective recomputation is that of attention without its products."""


class Layer(nn.Module):
    """On [batch, sequence, hidden]."""

    def __init__(self, hidden: int, heads: int, again: Again = "nothing") -> None:
        super().__init__()
        self.heads, self.again = heads, again
        self.attention_norm, self.mlp_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.query_key_value, self.dense = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + F.dropout(self.dense(self.attend(self.attention_norm(x))), 0.1)
        return x + F.dropout(self.down(F.gelu(self.up(self.mlp_norm(x)))), 0.1)

    def attend(self, x: Tensor) -> Tensor:
        size = x.shape[-1] // self.heads
        parts = self.query_key_value(x).unflatten(-1, (self.heads, 3 * size)).transpose(1, 2)
        query, key, value = parts.chunk(3, dim=-1)
        if self.again == "attention":
            return checkpoint(_core, query, key, value, use_reentrant=False)
        return _core(query, key, value)


def _core(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Scores, softmax, dropout and what they weigh."""
    scores = (query @ key.transpose(-1, -2)) * query.shape[-1] ** -0.5
    weights = F.dropout(torch.softmax(scores, -1), 0.1)
    return (weights @ value).transpose(1, 2).flatten(2)


class Stack(nn.Module):
    """Layers; their sum comes out."""

    _tp_plan: ClassVar[dict[str, str]] = {
        "layers.*.query_key_value": "colwise",
        "layers.*.dense": "rowwise",
        "layers.*.up": "colwise",
        "layers.*.down": "rowwise",
    }

    def __init__(self, layers: int, hidden: int, heads: int, again: Again = "nothing") -> None:
        super().__init__()
        self.again = again
        self.layers = nn.ModuleList(Layer(hidden, heads, again) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again == "layers" else layer(x)
        return x.float().sum()
