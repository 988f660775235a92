"""GPT as Megatron computes it: attention of plain ops, dropout, a loss in f32."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DROPOUT = 0.1


class Layer(nn.Module):
    """A transformer layer on [batch, sequence, hidden]."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.query_key_value, self.dense = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + F.dropout(self.dense(self.attend(self.attention_norm(x), mask)), DROPOUT)
        wide = F.gelu(self.up(self.mlp_norm(x)), approximate="tanh")
        return x + F.dropout(self.down(wide), DROPOUT)

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, sequence, hidden = x.shape
        size = hidden // self.heads
        parts = self.query_key_value(x).view(batch, sequence, self.heads, 3 * size).transpose(1, 2)
        query, key, value = parts.chunk(3, dim=-1)
        scores = (query @ key.transpose(-1, -2)) * size**-0.5
        weights = F.dropout(torch.softmax(scores.masked_fill(mask, -10000.0), -1), DROPOUT)
        return (weights @ value).transpose(1, 2).reshape(batch, sequence, hidden)


class Gpt(nn.Module):
    """A GPT, whose loss comes out. Megatron cuts the vocabulary, too."""

    _tp_plan: ClassVar[dict[str, str]] = {
        "tokens": "embedding_rowwise",
        "layers.*.query_key_value": "colwise",
        "layers.*.dense": "rowwise",
        "layers.*.up": "colwise",
        "layers.*.down": "rowwise",
        "head": "colwise",
    }

    def __init__(self, hidden: int, heads: int, layers: int, sequence: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(sequence, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        sequence = ids.shape[1]
        x = F.dropout(self.tokens(ids) + self.places(torch.arange(sequence)), DROPOUT)
        mask = torch.ones(sequence, sequence, dtype=torch.bool).triu(1)
        for layer in self.layers:
            x = layer(x, mask)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
