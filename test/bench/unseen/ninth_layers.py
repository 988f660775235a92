"""Functions of the ninth list, second part: products, convolutions, attention, decoding."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def _layer(*shapes: tuple[int, ...]) -> Made:
    """The first shape as it is; others as weights, over the root of what they sum."""

    def made() -> list[Tensor]:
        first, *others = shapes
        weights = [torch.randn(s) / math.sqrt(max(1, math.prod(s[1:]))) for s in others]
        return [torch.randn(first), *weights]

    return made


def gram(a: Tensor, b: Tensor) -> Tensor:
    """Products of long columns over their norms: [samples, features]."""
    return (a.T @ b) / (a.norm(dim=0)[:, None] * b.norm(dim=0))


def features_by_matrix(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A 4-D tensor times a matrix, under a SiLU: odd sizes."""
    return F.silu(x @ w + b)


def symmetric(a: Tensor, b: Tensor) -> Tensor:
    """The product of two matrices that are made symmetric, without its diagonal."""
    made = (a + a.T) @ (b + b.T) * 0.25
    return made - torch.diag(made.diagonal())


def lower_scores(x: Tensor, y: Tensor) -> Tensor:
    """The lower triangle of scores of pairs, squashed, over counts of its rows."""
    made = torch.tanh(x @ y.mT / math.sqrt(x.shape[-1])).tril(-1)
    return made / torch.arange(1, made.shape[-1] + 1)[:, None]


def normed_linear(x: Tensor, w: Tensor, b: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """A linear layer, group norm, a clamp, a residual, and the mean over features."""
    y = F.group_norm(F.linear(x, w, b), 12, gain, bias)
    return (F.hardtanh(y, -1.5, 1.5) + x).mean(1)


def pairs_of_features(x: Tensor, w: Tensor, b: Tensor, scale: Tensor) -> Tensor:
    """The larger of each pair of features of a layer, scaled, softplus, summed."""
    y = F.linear(x, w, b).unflatten(-1, (-1, 2)).amax(-1)
    return F.softplus(y * scale).sum(-1, keepdim=True)


def odd_gelu(x: Tensor, w: Tensor, b: Tensor, residual: Tensor) -> Tensor:
    return F.gelu(F.linear(x, w, b) * 0.3, approximate="tanh") + residual


def softmax_of_layer(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """Weights of a softmax over a layer's classes, times their values, ELU."""
    return F.elu(torch.softmax(x @ w.T / 0.7, 1) @ v)


def two_sided(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Pictures between two matrices, as a separable transform: [batch, h, w]."""
    return (left @ x @ right.T).abs().sqrt()


def last_block(x: Tensor, w: Tensor, scale: Tensor, bias: Tensor, gain: Tensor) -> Tensor:
    """A depthwise 7x7, layer norm over channels, GELU, scaled, as a residual."""
    y = F.conv2d(x, w, padding=3, groups=x.shape[1])
    y = F.layer_norm(y.permute(0, 2, 3, 1), (x.shape[1],), gain, bias)
    return x + (scale * F.gelu(y)).permute(0, 3, 1, 2)


def shuffled_groups(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A grouped 1x1 convolution, channels shuffled, SELU."""
    y = F.conv2d(x, w, b, groups=3)
    return F.selu(y.unflatten(1, (3, -1)).transpose(1, 2).flatten(1, 2))


def dilated_silu(x: Tensor, w: Tensor, b: Tensor, gain: Tensor) -> Tensor:
    """A dilated 3x3, scaled, SiLU, and the mean over the plane."""
    return (F.silu(F.conv2d(x, w, b, padding=2, dilation=2)) * gain[:, None, None]).mean((2, 3))


def shrunk_maps(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A strided 5x3, soft shrinkage, the largest of windows."""
    return F.max_pool2d(F.softshrink(F.conv2d(x, w, b, stride=(2, 1), padding=(2, 1)), 0.2), 3, 2)


def entropy_of_maps(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Entropy of a softmax over channels of a 3x3 convolution."""
    y = torch.log_softmax(F.conv2d(x, w, b, padding=1), 1)
    return -(y.exp() * y).sum(1)


def gated_steps(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A strided convolution over time, and a gated unit."""
    return F.glu(F.conv1d(x, w, b, stride=2, padding=3), 1)


def wide_time(x: Tensor, w: Tensor) -> Tensor:
    """A depthwise convolution over 31 steps, squared ReLU."""
    return F.relu(F.conv1d(x, w, padding=15, groups=x.shape[1])).square()


def soft_volume(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A 3-D convolution, softplus, and the mean over depth, doubled."""
    return 2 * F.softplus(F.conv3d(x, w, b, padding=1)).mean(2)


def grown_time(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A transposed convolution over time, ELU, less the mean."""
    y = F.elu(F.conv_transpose1d(x, w, b, stride=2, padding=1))
    return y - y.mean(-1, keepdim=True)


def grown_planes(x: Tensor, w: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """A transposed convolution, softsign, a bias, the smallest channel."""
    return (F.softsign(F.conv_transpose2d(x, w, b, stride=2)) + bias[:, None, None]).amin(1, keepdim=True)


def windows_and_sinks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention to 32 tokens before and to the first four."""
    n = torch.arange(q.shape[2])
    apart = n[:, None] - n
    seen = (apart >= 0) & ((apart < 32) | (n < 4))
    scores = (q @ k.mT) / math.sqrt(q.shape[-1])
    return torch.softmax(scores.masked_fill(~seen, -1e9), -1) @ v


def padded_memory(q: Tensor, k: Tensor, v: Tensor, length: Tensor) -> Tensor:
    """Attention to a memory of given lengths, with a key that is always there."""
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill((torch.arange(k.shape[1]) >= length[:, None])[:, None, None], -1e4)
    most = scores.amax(-1, keepdim=True).clamp(min=0)
    share = (scores - most).exp()
    share = share / (share.sum(-1, keepdim=True) + (-most).exp())
    return torch.einsum("bhqk,bkhd->bqhd", share, v)


def pooled_by_queries(x: Tensor, query: Tensor, w: Tensor) -> Tensor:
    """Four learned queries over a sequence: [batch, time, width]."""
    keys = torch.tanh(x @ w)
    share = torch.softmax(torch.einsum("btd,nd->bnt", keys, query), -1)
    return torch.einsum("bnt,btd->bnd", share, x)


def relative_window(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    """Attention in windows of 7 x 7 with a table of relative places: [windows, heads, 49, width]."""
    y = torch.arange(49) // 7
    x = torch.arange(49) % 7
    at = (y[:, None] - y + 6) * 13 + (x[:, None] - x + 6)
    scores = q @ k.mT * 0.25 + table[at].permute(2, 0, 1)
    return torch.softmax(scores, -1) @ v


def causal_features(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal linear attention in chunks, by sums of outer products before each chunk."""
    q, k = F.elu(q) + 1, F.elu(k) + 1
    q, k, v = (t.unflatten(2, (-1, 32)) for t in (q, k, v))
    outer = k.mT @ v
    before = outer.cumsum(2) - outer
    inside = (q @ k.mT).tril() @ v
    return (q @ before + inside).flatten(2, 3)


def one_token(q: Tensor, k: Tensor, v: Tensor, at: Tensor) -> Tensor:
    """A step of decoding with grouped heads over a cache that is filled in part."""
    q = q.unflatten(1, (k.shape[1], -1))
    scores = (q @ k.mT) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(torch.arange(k.shape[2]) > at[:, None, None, None], -math.inf)
    return (torch.softmax(scores, -1) @ v).flatten(1, 2)


def fed_token(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, w: Tensor) -> Tensor:
    """A feed-forward block of a few tokens: norm, gated layer, residual."""
    h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w
    return x + (F.silu(h @ gate.T) * (h @ up.T)) @ down.T


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "gram of long columns": (gram, _of((20_000, 40), (20_000, 24)), True),
    "features by a matrix": (features_by_matrix, _of((12, 17, 31, 96), (96, 70), (70,)), True),
    "symmetric product": (symmetric, _of((321, 321), (321, 321)), True),
    "lower scores": (lower_scores, _of((8, 250, 48), (8, 250, 48)), True),
    "linear, group norm, clamp": (
        normed_linear,
        _layer((1000, 192), (192, 192), (192,), (192,), (192,)),
        True,
    ),
    "pairs of features": (pairs_of_features, _layer((1000, 200), (300, 200), (300,), ()), True),
    "odd gelu": (odd_gelu, _layer((513, 257), (321, 257), (321,), (513, 321)), True),
    "softmax of a layer": (softmax_of_layer, _layer((2000, 64), (150, 64), (150, 50)), True),
    "two-sided product": (two_sided, _of((16, 192, 192), (96, 192), (100, 192)), True),
    "last block": (last_block, _layer((4, 48, 40, 40), (48, 1, 7, 7), (48,), (48,), (48,)), True),
    "shuffled groups": (shuffled_groups, _layer((8, 48, 50, 50), (72, 16, 1, 1), (72,)), True),
    "dilated silu": (dilated_silu, _layer((4, 24, 50, 50), (40, 24, 3, 3), (40,), (40,)), True),
    "shrunk maps": (shrunk_maps, _layer((8, 10, 64, 64), (20, 10, 5, 3), (20,)), True),
    "entropy of maps": (entropy_of_maps, _layer((4, 16, 60, 60), (21, 16, 3, 3), (21,)), True),
    "gated steps": (gated_steps, _layer((8, 24, 2000), (64, 24, 7), (64,)), True),
    "wide time": (wide_time, _layer((8, 64, 1000), (64, 1, 31)), True),
    "soft volume": (soft_volume, _layer((2, 8, 12, 30, 30), (16, 8, 3, 3, 3), (16,)), True),
    "grown time": (grown_time, _layer((8, 32, 700), (32, 20, 4), (20,)), True),
    "grown planes": (grown_planes, _layer((4, 24, 30, 30), (24, 18, 3, 3), (18,), (18,)), True),
    "windows and sinks": (windows_and_sinks, _of(*[(2, 6, 300, 32)] * 3), True),
    "padded memory": (
        padded_memory,
        lambda: [*_of((4, 200, 6, 32), (4, 150, 6, 32), (4, 150, 6, 32))(), torch.randint(1, 150, (4,))],
        True,
    ),
    "pooled by queries": (pooled_by_queries, _of((32, 150, 96), (4, 96), (96, 96)), True),
    "relative window": (relative_window, _of(*[(64, 3, 49, 32)] * 3, (169, 3)), True),
    "causal features": (causal_features, _of(*[(2, 6, 512, 32)] * 3), True),
    "one token": (
        one_token,
        lambda: [*_of((4, 16, 1, 64), (4, 4, 1024, 64), (4, 4, 1024, 64))(), torch.randint(1024, (4,))],
        False,
    ),
    "fed token": (
        fed_token,
        lambda: [torch.randn(4, 640), *(t / 25 for t in _of(*[(1700, 640)] * 2, (640, 1700), (640,))())],
        False,
    ),
}
