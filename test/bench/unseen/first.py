"""Functions of the first list, those of issue 23: losses, activations, pooling, padding, int8, moved data."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _plane(rows: int = 2048, columns: int = 1024, count: int = 1) -> Made:
    return lambda: [torch.randn(rows, columns) for _ in range(count)]


def _image(batch: int = 8, channels: int = 32, size: int = 64) -> Made:
    return lambda: [torch.randn(batch, channels, size, size)]


def _image_and_weights(batch: int = 8, channels: int = 32, size: int = 64) -> Made:
    return lambda: [torch.randn(batch, channels, size, size), torch.rand(channels), torch.randn(channels)]


def quantise(x: Tensor) -> Tensor:
    scale = x.abs().amax(-1, keepdim=True) / 127
    q = torch.clamp(torch.round(x / scale), -128, 127).to(torch.int8)
    return q.to(torch.float32) * scale


def channels_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    mean = x.mean(1, keepdim=True)
    var = (x - mean).pow(2).mean(1, keepdim=True)
    return (x - mean) / torch.sqrt(var + 1e-6) * w[:, None, None] + b[:, None, None]


def norm_and_pool(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.max_pool2d(F.relu(F.batch_norm(x, None, None, w, b, training=True)), 2)


def windows(x: Tensor) -> Tensor:
    x = torch.roll(x, (-4, -4), (1, 2))
    batch, height, width, channels = x.shape
    x = x.view(batch, height // 8, 8, width // 8, 8, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, channels) * 1.5


def triangular(x: Tensor) -> Tensor:
    mask = torch.ones(x.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(x.masked_fill(~mask, -math.inf), -1)


def dequantised_bias(q: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return q.to(torch.float32) * scale + bias


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "bilinear upsampling": (
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
        _image(4, 32, 32),
        True,
    ),
    "nearest upsampling": (lambda x: F.interpolate(x, scale_factor=2) + 1, _image(4, 32, 64), True),
    "quantise int8": (quantise, _plane(), False),
    "dequantise and bias": (
        dequantised_bias,
        lambda: [
            torch.randint(-128, 128, (2048, 1024), dtype=torch.int8),
            torch.rand(2048, 1),
            torch.randn(1024),
        ],
        False,
    ),
    "norm over channels": (channels_norm, _image_and_weights(), True),
    "max pooling": (lambda x: F.max_pool2d(x, 3, 2, 1), _image(), True),
    "average pooling": (lambda x: F.avg_pool2d(x, 3, 2, 1), _image(), True),
    "norm and max pooling": (norm_and_pool, _image_and_weights(), True),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), _plane(), True),
    "leaky relu": (lambda x: F.leaky_relu(x, 0.1), _plane(), True),
    "elu": (lambda x: F.elu(x), _plane(), True),
    "selu": (lambda x: F.selu(x) * 2, _plane(), True),
    "softplus": (lambda x: F.softplus(x), _plane(), True),
    "mish": (lambda x: F.mish(x), _plane(), True),
    "hardswish": (lambda x: F.hardswish(x), _plane(), True),
    "hardsigmoid": (lambda x: F.hardsigmoid(x) * x, _plane(), True),
    "hardtanh": (lambda x: F.hardtanh(x) + 1, _plane(), True),
    "log sigmoid": (lambda x: F.logsigmoid(x), _plane(), True),
    "round": (lambda x: torch.round(x * 8) / 8, _plane(), True),
    "remainder": (lambda x: torch.remainder(x, 0.7) - 0.1, _plane(), True),
    "sign and atan": (lambda x: torch.sign(x) * torch.atan(x), _plane(), True),
    "bytes": (
        lambda x, y: (x & y) ^ (x << 1),
        lambda: [torch.randint(0, 255, (2048, 2048), dtype=torch.uint8) for _ in range(2)],
        False,
    ),
    "pixel shuffle": (lambda x: F.pixel_shuffle(x, 2), _image(8, 64, 64), True),
    "roll": (lambda x: torch.roll(x, 7, -1) + x, _plane(), True),
    "flip": (lambda x: torch.flip(x, (-1,)) * x, _plane(), True),
    "roll and windows": (windows, lambda: [torch.randn(4, 64, 64, 96)], True),
    "pad and add": (lambda x: F.pad(x, (1, 1, 1, 1)) + 1, _image(), True),
    "reflection pad": (lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect") * 2, _image(), True),
    "unfold": (lambda x: x.unfold(-1, 64, 32).mean(-1), _plane(), True),
    "repeat": (lambda x: x.repeat(2, 2) * 2, _plane(), True),
    "max": (lambda x: x.max(-1).values, _plane(), True),
    "argmax": (lambda x: x.argmax(-1), _plane(), False),
    "any above": (lambda x: (x > 3).any(-1), _plane(), False),
    "product": (lambda x: (x * 0.01 + 1).prod(-1), _plane(), True),
    "cumsum": (lambda x: x.cumsum(-1) * 2, _plane(), True),
    "relu of transposed": (lambda x, y: F.relu(x.T + y), _plane(1024, 1024, 2), True),
    "mse": (F.mse_loss, _plane(count=2), True),
    "smooth l1": (F.smooth_l1_loss, _plane(count=2), True),
    "huber": (F.huber_loss, _plane(count=2), True),
    "kl": (
        lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
        _plane(count=2),
        True,
    ),
    "bce with logits": (lambda x, y: F.binary_cross_entropy_with_logits(x, y), _plane(count=2), True),
    "cosine loss": (lambda x, y: 1 - F.cosine_similarity(x, y).mean(), _plane(count=2), True),
    "hinge loss": (
        lambda x, y: F.hinge_embedding_loss(x, torch.where(y > 0, 1.0, -1.0)),
        _plane(count=2),
        True,
    ),
    "triplet loss": (F.triplet_margin_loss, _plane(count=3), True),
    "sum of squares": (lambda x: (x * x).sum(), _plane(), True),
    "softmax of a triangle": (triangular, lambda: [torch.randn(8, 512, 512)], True),
}
"""Name: the function, its tensors, and whether it has gradients."""
