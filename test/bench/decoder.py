"""A decoder of Llama's kind, with dense layers or mixtures of experts, whose attention and experts can be
replaced: by what a peer wrote by hand for its rank's part of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries [batch, heads, rows, D], keys and values [batch, kv_heads, rows, D] -> [batch, heads, rows, D]."""
Experts = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Rows [S, width], the expert of each [S], matrices [E, width, 2 inner], [E, inner, width] -> [S, width]."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a decoder; ``experts`` 0 has dense layers."""

    blocks: int = 4
    width: int = 256
    inner: int = 704
    heads: int = 8
    kv_heads: int = 4
    vocab: int = 2048
    experts: int = 0
    chosen: int = 2


def attend_causally(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def gated(hidden: Tensor) -> Tensor:
    """SwiGLU of gates and values beside each other: [..., 2 inner] -> [..., inner]."""
    gate, up = hidden.chunk(2, -1)
    return F.silu(gate) * up


def all_experts(rows: Tensor, ids: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Each row times its expert's matrices, as ``shardc`` finds it."""
    hidden = gated(torch.bmm(rows.unsqueeze(1), up[ids]))
    return torch.bmm(hidden, down[ids]).squeeze(1)


class Attention(nn.Module):
    """Grouped-query attention with rotary positions; [batch, rows, width]."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self._depth = sizes.width // sizes.heads
        self._parts = [sizes.heads, sizes.kv_heads, sizes.kv_heads]
        self.qkv = nn.Linear(sizes.width, self._depth * sum(self._parts), bias=False)
        self.out = nn.Linear(sizes.width, sizes.width, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        heads = self.qkv(x).unflatten(-1, (-1, self._depth)).transpose(1, 2)
        q, k, v = heads.split(self._parts, 1)
        attended = attend(_turned(q, *turn), _turned(k, *turn), v)
        return self.out(attended.transpose(1, 2).flatten(2))


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Mixture(nn.Module):
    """A router, and ``chosen`` of the experts for each row."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.router = nn.Linear(sizes.width, sizes.experts, bias=False)
        scale = sizes.width**-0.5
        self.up = nn.Parameter(scale * torch.randn(sizes.experts, sizes.width, 2 * sizes.inner))
        self.down = nn.Parameter(scale * torch.randn(sizes.experts, sizes.inner, sizes.width))
        self._chosen = sizes.chosen

    def forward(self, x: Tensor, experts: Experts) -> Tensor:
        rows = x.flatten(0, 1)
        weights, ids = self.router(rows).softmax(-1).topk(self._chosen, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        copies = rows.repeat_interleave(self._chosen, 0)
        made = experts(copies, ids.flatten(), self.up, self.down)
        return (made.unflatten(0, weights.shape) * weights.unsqueeze(-1)).sum(1).view_as(x)


class Dense(nn.Module):
    """A gated feed-forward net."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.up = nn.Linear(sizes.width, 2 * sizes.inner, bias=False)
        self.down = nn.Linear(sizes.inner, sizes.width, bias=False)

    def forward(self, x: Tensor, experts: Experts) -> Tensor:
        return self.down(gated(self.up(x)))


class Block(nn.Module):
    """Attention and a feed-forward net or experts, each behind a norm."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.first, self.second = nn.RMSNorm(sizes.width), nn.RMSNorm(sizes.width)
        self.attention = Attention(sizes)
        self.mlp = Mixture(sizes) if sizes.experts else Dense(sizes)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], attend: Attend, experts: Experts) -> Tensor:
        x = x + self.attention(self.first(x), turn, attend)
        return x + self.mlp(self.second(x), experts)


class Decoder(nn.Module):
    """Token embedding, blocks, and the mean loss of the next token."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self._sizes = sizes
        self.embed = nn.Embedding(sizes.vocab, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.blocks))
        self.norm = nn.RMSNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.vocab, bias=False)

    def forward(
        self,
        ids: Tensor,
        labels: Tensor,
        places: Tensor | None = None,
        attend: Attend = attend_causally,
        experts: Experts = all_experts,
    ) -> Tensor:
        """The loss of ids and labels [batch, rows]; ``places``: those of the rows in the sequence."""
        x, turn = self.embed(ids), self._turn(torch.arange(ids.shape[1]) if places is None else places)
        for block in self.blocks:
            x = block(x, turn, attend, experts)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())

    def _turn(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of rotary positions, [rows, depth of a head] each (Su et al., 2021)."""
        half = self._sizes.width // self._sizes.heads // 2
        speeds = 1e4 ** -(torch.arange(half) / half)
        angles = (places.unsqueeze(1) * speeds).repeat(1, 2)
        return angles.cos(), angles.sin()
