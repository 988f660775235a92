"""Llama 3.1 as torchtitan trained it at the end of 2024 (its commit 2a44370), in plain PyTorch.

Parameters are f32 and are read in bf16, as FSDP's mixed precision does. Rotary embeddings are in f32, written
with real numbers. The logits become f32 in the loss.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

aten = torch.ops.aten
Recompute = Literal["none", "selective", "full"]


@dataclass(frozen=True)
class Sizes:
    """Those of a Llama. ``hidden``: of the feed-forward's products."""

    layers: int
    dim: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int = 128256
    recompute: Recompute = "selective"


LLAMA_8B = Sizes(32, 4096, 32, 8, 14336)
LLAMA_405B = Sizes(126, 16384, 128, 8, 53248, recompute="full")


class Linear(nn.Linear):
    """Without bias, read in bf16."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.bfloat16())


class RMSNorm(nn.Module):
    """The mean square in f32, its weight in bf16."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(
            x
        ) * self.weight.bfloat16()


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary embedding of [batch, sequence, heads, size] by [sequence, size / 2] angles."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(3).type_as(x)


class Attention(nn.Module):
    """Grouped queries, causal."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        dim, head = sizes.dim, sizes.dim // sizes.heads
        self.head, self.repeat = head, sizes.heads // sizes.kv_heads
        self.wq, self.wk = Linear(dim, dim), Linear(dim, sizes.kv_heads * head)
        self.wv, self.wo = Linear(dim, sizes.kv_heads * head), Linear(dim, dim)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        query, key, value = (w(x).unflatten(-1, (-1, self.head)) for w in (self.wq, self.wk, self.wv))
        query, key = rotated(query, angles), rotated(key, angles)
        key, value = (t.repeat_interleave(self.repeat, 2) for t in (key, value))
        query, key, value = (t.transpose(1, 2) for t in (query, key, value))
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.wo(attended.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.w1, self.w2 = Linear(sizes.dim, sizes.hidden), Linear(sizes.hidden, sizes.dim)
        self.w3 = Linear(sizes.dim, sizes.hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(sizes), FeedForward(sizes)
        self.attention_norm, self.ffn_norm = RMSNorm(sizes.dim), RMSNorm(sizes.dim)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        h = x + self.attention(self.attention_norm(x), angles)
        return h + self.feed_forward(self.ffn_norm(h))


class Llama(nn.Module):
    """Logits in bf16 of tokens [batch, sequence]."""

    def __init__(self, sizes: Sizes, sequence: int) -> None:
        super().__init__()
        self.recompute: Recompute = sizes.recompute
        self.tok_embeddings = nn.Embedding(sizes.vocabulary, sizes.dim)
        self.layers = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm, self.output = RMSNorm(sizes.dim), Linear(sizes.dim, sizes.vocabulary)
        half = sizes.dim // sizes.heads // 2
        powers = 500000.0 ** (-torch.arange(half) / half)
        self.register_buffer("angles", torch.outer(torch.arange(sequence), powers))

    def forward(self, tokens: Tensor) -> Tensor:
        h = F.embedding(tokens, self.tok_embeddings.weight.bfloat16())
        for layer in self.layers:
            h = self._layer(layer, h)
        return self.output(self.norm(h))

    def _layer(self, layer: nn.Module, h: Tensor) -> Tensor:
        if self.recompute == "none":
            return layer(h, self.angles)
        if self.recompute == "full":
            return checkpoint(layer, h, self.angles, use_reentrant=False, preserve_rng_state=False)
        return checkpoint(
            layer,
            h,
            self.angles,
            use_reentrant=False,
            preserve_rng_state=False,
            context_fn=every_other_matmul,
        )


ATTENTION = ("shardc.attention", "aten._scaled_dot_product_flash_attention")


def every_other_matmul() -> tuple[object, object]:
    """Keeps attention's results and those of the first, third, ... product of a layer."""
    counts: dict[bool, int] = defaultdict(int)
    return create_selective_checkpoint_contexts(partial(_policy, counts))


def _policy(
    counts: dict[bool, int], ctx: object, func: Callable[..., object], *_: object, **__: object
) -> CheckpointPolicy:
    is_recompute: bool = ctx.is_recompute  # pyright: ignore
    if func == aten.mm.default:
        counts[is_recompute] += 1
        return _kept(counts[is_recompute] % 2 == 1)
    return _kept(str(func).startswith(ATTENTION))


def _kept(keeps: bool) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
