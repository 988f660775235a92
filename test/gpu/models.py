"""Transformers in plain torch, which `prepare.py` compiles, as references for runs on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Size:
    """Of a model and of its batch."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    words: int
    batch: int
    length: int


class RMSNorm(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


class Attention(nn.Module):
    def __init__(self, size: Size, causal: bool, turned: bool, bias: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.causal, self.turned = size.heads, size.kv_heads, causal, turned
        width = size.hidden // size.heads
        self.q = nn.Linear(size.hidden, size.hidden, bias=bias)
        self.k = nn.Linear(size.hidden, size.kv_heads * width, bias=bias)
        self.v = nn.Linear(size.hidden, size.kv_heads * width, bias=bias)
        self.o = nn.Linear(size.hidden, size.hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        made = (self.q(x), self.k(x), self.v(x))
        q, k, v = (y.view(batch, length, -1, hidden // self.heads).transpose(1, 2) for y in made)
        if self.turned:
            q, k = _turned(q), _turned(k)
        out = F.scaled_dot_product_attention(
            q, k, v, is_causal=self.causal, enable_gqa=self.heads != self.kv_heads
        )
        return self.o(out.transpose(1, 2).reshape(batch, length, hidden))


def _turned(x: Tensor) -> Tensor:
    """Rotary positions."""
    half = x.shape[-1] // 2
    frequencies = 10000 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)[:, None] * frequencies
    cos, sin = (f(angles).repeat(1, 2).to(x.dtype) for f in (torch.cos, torch.sin))
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Gated(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.up, self.gate = (nn.Linear(size.hidden, size.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(size.inner, size.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Plain(nn.Module):
    def __init__(self, size: Size, dropout: float) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(size.hidden, size.inner), nn.Linear(size.inner, size.hidden)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.down(F.gelu(self.up(x))), self.dropout, self.training)


class Layer(nn.Module):
    """Normed before each part, or after it (``behind``)."""

    def __init__(
        self, attention: nn.Module, inner: nn.Module, norms: list[nn.Module], behind: bool = False
    ) -> None:
        super().__init__()
        self.attention, self.inner, self.behind = attention, inner, behind
        self.first, self.second = norms

    def forward(self, x: Tensor) -> Tensor:
        if self.behind:
            x = self.first(x + self.attention(x))
            return self.second(x + self.inner(x))
        x = x + self.attention(self.first(x))
        return x + self.inner(self.second(x))


class Language(nn.Module):
    """Llama, GPT-2 or BERT over tokens; the loss is that of the next token, or (BERT) of each token."""

    def __init__(self, kind: str, size: Size, dropout: float = 0.0) -> None:
        super().__init__()
        llama = kind == "llama"
        self.causal = kind != "bert"
        norm = (lambda: RMSNorm(size.hidden)) if llama else (lambda: nn.LayerNorm(size.hidden))
        self.table = nn.Embedding(size.words, size.hidden)
        self.positions = None if llama else nn.Embedding(size.length, size.hidden)
        self.layers = nn.ModuleList(
            Layer(
                Attention(size, self.causal, llama, not llama),
                Gated(size) if llama else Plain(size, dropout),
                [norm(), norm()],
                kind == "bert",
            )
            for _ in range(size.layers)
        )
        self.norm, self.head = norm(), nn.Linear(size.hidden, size.words, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        if self.positions is not None:
            x = x + self.positions.weight
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        if self.causal:
            logits, ids = logits[:, :-1], ids[:, 1:]
        return F.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())


class Vision(nn.Module):
    """ViT over patches of 16 x 16; ``length`` patches, ``words`` classes."""

    def __init__(self, size: Size, dropout: float = 0.0) -> None:
        super().__init__()
        self.patches = nn.Linear(3 * 16 * 16, size.hidden)
        self.positions = nn.Parameter(torch.randn(size.length, size.hidden) * 0.02)
        self.layers = nn.ModuleList(
            Layer(
                Attention(size, False, False, True),
                Plain(size, dropout),
                [nn.LayerNorm(size.hidden), nn.LayerNorm(size.hidden)],
            )
            for _ in range(size.layers)
        )
        self.norm, self.head = nn.LayerNorm(size.hidden), nn.Linear(size.hidden, size.words)

    def forward(self, patches: Tensor, labels: Tensor) -> Tensor:
        x = self.patches(patches) + self.positions
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x).mean(1)).float(), labels)


SMALL = Size(hidden=128, inner=256, layers=2, heads=8, kv_heads=4, words=509, batch=4, length=67)
"""Of tests: odd numbers of tokens and words."""
SIZES = {
    "llama": Size(2048, 5632, 16, 32, 8, 32000, 4, 2048),
    "gpt2": Size(1024, 4096, 24, 16, 16, 50304, 8, 1024),
    "bert": Size(1024, 4096, 24, 16, 16, 30528, 32, 512),
    "vit": Size(1024, 4096, 24, 16, 16, 1000, 64, 196),
}
"""Of the benchmark: 0.3 to 0.9 billion parameters."""
TINY = {name: Size(32, 64, 1, 4, 2 if name == "llama" else 4, 53, 2, 9) for name in SIZES}
"""Fit for an interpreter."""


def build(kind: str, size: Size, dropout: float = 0.0) -> nn.Module:
    return Vision(size, dropout) if kind == "vit" else Language(kind, size, dropout)


def batch(kind: str, size: Size, number: int = 0) -> dict[str, Tensor]:
    """The same on every machine."""
    generator = torch.Generator().manual_seed(100 + number)
    if kind == "vit":
        patches = torch.randn(size.batch, size.length, 3 * 16 * 16, generator=generator)
        return {"patches": patches, "labels": torch.randint(size.words, (size.batch,), generator=generator)}
    return {"ids": torch.randint(size.words, (size.batch, size.length), generator=generator)}


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
