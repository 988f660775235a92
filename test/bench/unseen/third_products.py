"""Functions of the third list, second part: rotary embeddings, quantisation, attention by hand, convolutions
and products with chains, images, updates.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def _conv(x: tuple[int, ...], weight: tuple[int, ...], channels: int) -> Made:
    """Pixels, weights with the scale that a layer draws them with, and a bias."""
    scale = 1 / math.sqrt(math.prod(weight[1:]))
    return lambda: [torch.randn(x), torch.randn(weight) * scale, torch.randn(channels)]


def rotated_pairs(x: Tensor, angles: Tensor) -> Tensor:
    first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([first * cos - second * sin, first * sin + second * cos], -1).flatten(-2)


def rotated_part(x: Tensor, table: Tensor, at: Tensor) -> Tensor:
    turned, rest = x[..., :32], x[..., 32:]
    cos, sin = table[at].cos()[:, None], table[at].sin()[:, None]
    half = torch.cat([-turned[..., 16:], turned[..., :16]], -1)
    return torch.cat([turned * cos + half * sin, rest], -1)


def fake_quantised(w: Tensor) -> Tensor:
    scale = (w.abs().amax(1, keepdim=True) / 7).detach()
    return w + (torch.round(w / scale).clamp(-8, 7) * scale - w).detach()


def nibbles(q: Tensor, scale: Tensor) -> Tensor:
    both = torch.stack([q & 15, q >> 4], -1).flatten(1).to(torch.float32) - 8
    return (both.unflatten(1, (-1, 64)) * scale[..., None]).flatten(1)


def block_quantised(x: Tensor) -> Tensor:
    blocks = x.unflatten(-1, (-1, 64))
    scale = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
    return (blocks / scale).round().clamp(-127, 127).to(torch.int8).flatten(-2)


def alibi(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    heads, size = q.shape[1], q.shape[2]
    slopes = 2.0 ** -(torch.arange(1, heads + 1, dtype=q.dtype) * 8 / heads)
    bias = slopes[:, None, None] * (torch.arange(size)[None] - torch.arange(size)[:, None])
    return torch.softmax(q @ k.transpose(-2, -1) / 8 + bias, -1) @ v


def softcap(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.tanh(q @ k.transpose(-2, -1) / (8 * 50)) * 50
    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(later, -math.inf), -1) @ v


def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return q @ (k.transpose(-2, -1) @ v) / (q @ k.sum(-2)[..., None] + 1e-6)


def grouped_heads(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    k, v = k.repeat_interleave(4, 1), v.repeat_interleave(4, 1)
    mask = (torch.arange(k.shape[2])[None] < lengths[:, None])[:, None, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def conv_minimum(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.tanh(torch.tanh(F.conv2d(x, w, b).amin(1, keepdim=True)))


def conv_sigmoid_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.group_norm(torch.sigmoid((F.conv2d(x, w) + b[:, None, None]) * 1.5), 8)


def causal_conv(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.silu(F.conv1d(F.pad(x, (3, 0)), w, b, groups=x.shape[1]))


def transposed_softmax(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.softmax(F.conv_transpose2d(x, w, b, stride=2), 1) * 2 + b[:, None, None]


def linear_pool(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.max_pool1d(F.linear(x, w, b)[:, None], 4)[:, 0].sum(1) * 0.5


def transposed_residual(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return (x.T @ y) * 0.1 + z * 2


def low_rank(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return F.gelu(x @ w + (x @ a) @ b * 2)


def bilinear(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return torch.sigmoid(((x @ w) * y).sum(-1))


def radial(x: Tensor, y: Tensor) -> Tensor:
    square = (x * x).sum(-1)[:, None] + (y * y).sum(-1)[None] - 2 * x @ y.T
    return torch.exp(-square.clamp(min=0) / x.shape[-1])


def blurred(x: Tensor) -> Tensor:
    at = torch.arange(-3, 4, dtype=x.dtype)
    weight = torch.softmax(-at * at / 4, 0).expand(x.shape[1], 1, -1)
    rows = F.conv2d(F.pad(x, (3, 3, 3, 3), mode="reflect"), weight[..., None, :], groups=x.shape[1])
    return F.conv2d(rows, weight[..., None], groups=x.shape[1])


def patches(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    cut = x.unflatten(2, (-1, 16)).unflatten(4, (-1, 16)).permute(0, 2, 4, 3, 5, 1)
    return F.layer_norm(cut.flatten(3).flatten(1, 2), (768,), w, b)


def augmented(x: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    cut = x[:, 16:240, 8:232].flip(2).permute(0, 3, 1, 2).to(mean.dtype) / 255
    return (cut - mean[:, None, None]) / deviation[:, None, None]


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
    m, v = torch.lerp(m, g, 0.1), v * 0.999 + g * g * 0.001
    return p * 0.9999 - 1e-3 * (m / 0.1) / ((v / 0.001).sqrt() + 1e-8)


def clipped(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    total = torch.stack([a.norm(), b.norm(), c.norm()]).norm()
    scale = (1 / (total + 1e-6)).clamp(max=1.0)
    return torch.cat([(t * scale).flatten() for t in (a, b, c)])


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "rotated pairs": (rotated_pairs, _of((4, 16, 512, 64), (512, 32)), True),
    "part rotated by positions": (
        rotated_part,
        lambda: [torch.randn(2048, 16, 80), torch.randn(4096, 32), torch.randint(0, 4096, (2048,))],
        True,
    ),
    "fake quantised weights": (fake_quantised, _of((2048, 1024)), True),
    "nibbles to floats": (
        nibbles,
        lambda: [torch.randint(0, 256, (1024, 1024), dtype=torch.uint8), torch.rand(1024, 32)],
        False,
    ),
    "quantised blocks": (block_quantised, _of((2048, 1024)), False),
    "attention with slopes": (alibi, _of(*[(2, 8, 256, 64)] * 3), True),
    "attention, capped": (softcap, _of(*[(2, 8, 256, 64)] * 3), True),
    "linear attention": (linear_attention, _of(*[(2, 8, 1024, 64)] * 3), True),
    "grouped heads under lengths": (
        grouped_heads,
        lambda: [
            torch.randn(4, 8, 256, 64),
            *(torch.randn(4, 2, 256, 64) for _ in range(2)),
            torch.randint(64, 257, (4,)),
        ],
        True,
    ),
    "convolution and minimum": (conv_minimum, _conv((8, 16, 48, 48), (32, 16, 3, 3), 32), True),
    "convolution, sigmoid, norm": (conv_sigmoid_norm, _conv((8, 16, 48, 48), (32, 16, 3, 3), 32), True),
    "causal convolution": (causal_conv, _conv((4, 256, 1024), (256, 1, 4), 256), True),
    "transposed convolution, softmax": (
        transposed_softmax,
        _conv((8, 32, 24, 24), (32, 16, 4, 4), 16),
        True,
    ),
    "linear and pool": (linear_pool, _of((512, 512), (1024, 512), (1024,)), True),
    "linear, gelu, softmax": (
        lambda x, w, b: torch.softmax(F.gelu(F.linear(x, w, b)), 1),
        _conv((512, 512), (1024, 512), 1024),
        True,
    ),
    "transposed product, residual": (transposed_residual, _of((512, 768), (512, 512), (768, 512)), True),
    "low rank update": (low_rank, _of((1024, 512), (512, 512), (512, 16), (16, 512)), True),
    "bilinear form": (bilinear, _of((2048, 256), (256, 256), (2048, 256)), True),
    "radial kernel": (radial, _of((1024, 64), (1024, 64)), True),
    "blur": (blurred, _of((8, 8, 128, 128)), True),
    "normed patches": (patches, _of((8, 3, 224, 224), (768,), (768,)), True),
    "augmented pixels": (
        augmented,
        lambda: [
            torch.randint(0, 256, (8, 256, 256, 3), dtype=torch.uint8),
            torch.randn(3),
            torch.rand(3) + 0.2,
        ],
        False,
    ),
    "sampled grid": (
        lambda x, grid: F.grid_sample(x, grid, align_corners=False),
        lambda: [torch.randn(4, 16, 64, 64), torch.rand(4, 64, 64, 2) * 2 - 1],
        True,
    ),
    "adam": (
        adam,
        lambda: [*(torch.randn(1024, 1024) for _ in range(3)), torch.rand(1024, 1024)],
        False,
    ),
    "clipped norm": (clipped, _of((1024, 1024), (512, 1024), (1024,)), False),
}
"""Name: the function, its tensors, and whether it has gradients."""
