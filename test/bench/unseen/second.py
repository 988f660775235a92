"""Functions of the second list: reductions along each dim, norms, scans, pools, convolutions, products with
epilogues, moved data, integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Made:
    return lambda: [torch.randn(shape).to(dtype) for shape in shapes]


def _conv(x: tuple[int, ...], weight: tuple[int, ...], channels: int) -> Made:
    """Pixels, weights with the scale that a layer draws them with, and a bias."""
    scale = 1 / math.sqrt(math.prod(weight[1:]))
    return lambda: [torch.randn(x), torch.randn(weight) * scale, torch.randn(channels)]


def odd_chain(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x > y, torch.sinh(x.clamp(-3, 3)) - y, torch.log1p(y.abs()) * x.sign())


def angles(x: Tensor, y: Tensor) -> Tensor:
    return torch.atan2(x, y) + torch.asin(torch.tanh(x)) - torch.tan(y * 0.1)


def wrapped(x: Tensor, y: Tensor) -> Tensor:
    return torch.remainder(x * 3, 2.0) + torch.fmod(y, 0.75)


def hashed(x: Tensor, y: Tensor) -> Tensor:
    return ((x * 31 + y) // 7 % 1021) ^ (x >> 3)


def l1_norm(x: Tensor) -> Tensor:
    return x / x.abs().mean(1, keepdim=True)


def frobenius(x: Tensor) -> Tensor:
    return x / torch.linalg.norm(x)


def rms_over_channels(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5)


def masked_sum(x: Tensor) -> Tensor:
    return torch.cumsum(x * (x > 0), 1)


def reverse_sum(x: Tensor) -> Tensor:
    return torch.flip(torch.cumsum(torch.flip(x, (1,)), 1), (1,))


def exclusive(x: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(x[:, :1]), x], 1)[:, :-1].cumsum(1)


def short_top(x: Tensor) -> Tensor:
    return torch.softmax(x.topk(4, -1).values, -1)


def focal(x: Tensor, y: Tensor) -> Tensor:
    target = torch.sigmoid(y)
    loss = F.binary_cross_entropy_with_logits(x, target, reduction="none")
    p = torch.sigmoid(x)
    return (loss * (1 - (p * target + (1 - p) * (1 - target))) ** 2).mean()


def smoothed(x: Tensor) -> Tensor:
    labels = torch.arange(x.shape[0]) % x.shape[1]
    return F.cross_entropy(x, labels, label_smoothing=0.1)


def conv_pool(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.max_pool2d(F.hardswish(F.conv2d(x, w, b) - 0.5), 2)


def conv_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.tanh(F.group_norm(F.conv2d(x, w, b, padding=1), 8)).amax((2, 3))


def pointwise_conv(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.silu(F.conv2d(x, w, b))


def conv1d_pool(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.avg_pool1d(F.gelu(F.conv1d(x, w, b, stride=2, dilation=3)), 4)


def conv3d_softmax(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.softmax(F.conv3d(x, w, b), 1).mean((2, 3, 4))


def transposed_conv(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    made = F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1)
    return (made + 0.1).clamp(-1, 1) * 2


def transposed_3d(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.avg_pool3d(F.leaky_relu(F.conv_transpose3d(x, w, b, stride=2)), 2)


def depthwise(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu6(F.conv2d(x, w, b, padding=2, groups=x.shape[1]))


def separable(x: Tensor, w: Tensor, b: Tensor, mix: Tensor) -> Tensor:
    return F.conv2d(F.conv2d(x, w, b, padding=1, groups=x.shape[1]), mix)


def upper(x: Tensor, y: Tensor) -> Tensor:
    return torch.triu(torch.triu(x) @ torch.triu(y))


def linear_rows(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    h = F.linear(x, w, b)
    return F.mish(h - h.mean(0, keepdim=True)) * 0.5 + h.amax(1, keepdim=True)


def linear_reduced(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(torch.logsumexp(F.linear(x, w, b).clamp(-10, 10), 1, keepdim=True) - 0.3)


def picked(x: Tensor, at: Tensor) -> Tensor:
    return x.gather(1, at) * 2 - x[:, : at.shape[1]]


def added_rows(x: Tensor, y: Tensor) -> Tensor:
    rows = torch.arange(y.shape[0]) * 7 % x.shape[0]
    return torch.index_add(x, 0, rows, y).relu()


def encoded(x: Tensor) -> Tensor:
    return F.one_hot(x.argmax(-1), x.shape[-1]) * x


def circular(x: Tensor) -> Tensor:
    return F.pad(x, (3, 3, 3, 3), mode="circular").abs() - 1


def attention_bias(x: Tensor) -> Tensor:
    size = x.shape[-1]
    distance = torch.arange(size)[:, None] - torch.arange(size)[None]
    return torch.softmax((x - 0.1 * distance).masked_fill(distance < 0, -math.inf), -1)


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "odd pointwise chain": (odd_chain, _of((2048, 1024), (2048, 1024)), True),
    "angles": (angles, _of((1024, 1024), (1024, 1024)), True),
    "remainder and fmod": (wrapped, _of((1024, 1024), (1024, 1024)), True),
    "integer hash": (
        hashed,
        lambda: [torch.randint(0, 1 << 20, (1024, 1024)) for _ in range(2)],
        False,
    ),
    "softsign": (F.softsign, _of((4096, 1024)), True),
    "tanh gelu in bf16": (
        lambda x, y: F.gelu(x, approximate="tanh") * y,
        _of((2048, 1024), (2048, 1024), dtype=torch.bfloat16),
        True,
    ),
    "mean over the middle": (lambda x: x.mean(1, keepdim=True) + 1, _of((16, 512, 512)), True),
    "maximum over the first": (lambda x: x.amax(0, keepdim=True), _of((256, 64, 256)), True),
    "argmin over the middle": (lambda x: x.argmin(1), _of((16, 256, 512)), False),
    "standard deviation": (lambda x: x / x.std(-1, keepdim=True), _of((2048, 1000)), True),
    "L1 norm": (l1_norm, _of((512, 8192)), True),
    "L2 norm": (lambda x: F.normalize(x, dim=1), _of((64, 128, 512)), True),
    "Frobenius norm": (frobenius, _of((16, 64, 64, 64)), True),
    "RMS norm over channels": (rms_over_channels, _of((16, 64, 64, 64)), True),
    "instance norm": (lambda x: F.instance_norm(x) * 2, _of((16, 32, 64, 64)), True),
    "group norm and silu": (lambda x: F.silu(F.group_norm(x, 8)), _of((16, 64, 64, 48)), True),
    "cumulative product": (lambda x: (1 + x * 0.01).cumprod(1), _of((512, 4000)), True),
    "masked cumulative sum": (masked_sum, _of((512, 4000)), True),
    "reverse cumulative sum": (reverse_sum, _of((512, 4000)), True),
    "exclusive cumulative sum": (exclusive, _of((512, 4000)), True),
    "top of short rows": (short_top, _of((16384, 64)), True),
    "sorted short rows": (lambda x: x.sort(-1).values[:, ::2] * 2, _of((8192, 64)), True),
    "max pool 1d, dilated": (lambda x: F.max_pool1d(x, 5, 2, 2, 3), _of((32, 64, 1024)), True),
    "max pool 3d": (lambda x: F.max_pool3d(x.relu(), 3, 2, 1), _of((4, 16, 32, 32, 32)), True),
    "average pool 2d, ceil": (
        lambda x: F.avg_pool2d(x * 2 + 1, 11, 5, 5, ceil_mode=True),
        _of((8, 32, 96, 96)),
        True,
    ),
    "tanh and average pool": (lambda x: F.avg_pool2d(torch.tanh(x), 2), _of((16, 32, 96, 96)), True),
    "focal loss": (focal, _of((1024, 1024), (1024, 1024)), True),
    "smoothed cross entropy": (smoothed, _of((4096, 512)), True),
    "pairwise hinge": (lambda x, y: F.relu(0.5 - x * y.sign()).mean(1), _of((4096, 512), (4096, 512)), True),
    "convolution and max pool": (conv_pool, _conv((8, 16, 64, 64), (32, 16, 3, 3), 32), True),
    "convolution, norm, maximum": (conv_norm, _conv((8, 16, 48, 48), (32, 16, 3, 3), 32), True),
    "1x1 convolution": (pointwise_conv, _conv((8, 64, 56, 56), (64, 64, 1, 1), 64), True),
    "convolution 1d and pool": (conv1d_pool, _conv((8, 32, 4096), (64, 32, 5), 64), True),
    "convolution 3d and softmax": (conv3d_softmax, _conv((4, 8, 16, 32, 32), (16, 8, 3, 3, 3), 16), True),
    "transposed convolution": (transposed_conv, _conv((8, 32, 32, 32), (32, 16, 3, 3), 16), True),
    "transposed convolution 3d": (transposed_3d, _conv((2, 16, 8, 16, 16), (16, 8, 3, 3, 3), 8), True),
    "depthwise convolution": (depthwise, _conv((8, 64, 64, 64), (64, 1, 5, 5), 64), True),
    "separable convolution": (
        separable,
        lambda: [*_conv((8, 32, 64, 64), (32, 1, 3, 3), 32)(), torch.randn(64, 32, 1, 1) * 0.1],
        True,
    ),
    "product of triangles": (upper, _of((768, 768), (768, 768)), True),
    "diagonal times matrix": (lambda d, x: torch.diag(d) @ x, _of((512,), (512, 1024)), True),
    "both transposed, sigmoid": (lambda x, y: torch.sigmoid(x.T @ y.T), _of((512, 768), (512, 512)), True),
    "batched product and bias": (
        lambda x, y, b: torch.relu(x @ y + b),
        _of((16, 256, 128), (16, 128, 256), (256,)),
        True,
    ),
    "linear, centred": (linear_rows, _of((1024, 512), (512, 512), (512,)), True),
    "linear to one number": (linear_reduced, _of((1024, 512), (512, 512), (512,)), True),
    "embedding and norm": (
        lambda t, w: F.layer_norm(F.embedding(t.long().abs() % 5000, w), (256,)),
        lambda: [torch.randint(0, 5000, (8192,)), torch.randn(5000, 256)],
        True,
    ),
    "gather along rows": (
        picked,
        lambda: [torch.randn(2048, 1024), torch.randint(0, 1024, (2048, 512))],
        True,
    ),
    "index add": (added_rows, _of((4096, 512), (2048, 512)), True),
    "one hot": (encoded, _of((4096, 256)), True),
    "circular pad": (circular, _of((16, 32, 64, 64)), True),
    "bicubic upsampling": (
        lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
        _of((4, 16, 48, 48)),
        True,
    ),
    "attention with distances": (attention_bias, _of((16, 384, 384)), True),
}
"""Name: the function, its tensors, and whether it has gradients."""
