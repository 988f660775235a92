"""Functions of tensors that each lower to a kernel: activations, losses, data movement, reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten
X, Y = torch.linspace(-9, 9, 32).reshape(4, 8), torch.linspace(4, -3, 32).reshape(4, 8).flip(1)
Functions = dict[str, Callable[..., Any]]

ACTIVATIONS: Functions = {
    "leaky relu": lambda x, y: F.leaky_relu(x, 0.1),
    "leaky relu backward": lambda x, y: aten.leaky_relu_backward(y, x, 0.2, False),
    "prelu": lambda x, y: aten._prelu_kernel(x, y[0]),
    "prelu backward": lambda x, y: aten._prelu_kernel_backward(y, x, y * 0.1),
    "threshold": lambda x, y: F.threshold(x, 0.5, -2.0),
    "elu": lambda x, y: F.elu(x, 0.7),
    "celu": lambda x, y: F.celu(x, 0.7),
    "selu": lambda x, y: F.selu(x),
    "elu backward": lambda x, y: aten.elu_backward(y, 0.7, 1.1, 0.9, False, x),
    "elu backward of the result": lambda x, y: aten.elu_backward(y, 0.7, 1.1, 0.9, True, F.elu(x, 0.7)),
    "softplus": lambda x, y: F.softplus(x, 2, 5),
    "softplus backward": lambda x, y: aten.softplus_backward(y, x, 2, 5),
    "mish": lambda x, y: F.mish(x),
    "mish backward": lambda x, y: aten.mish_backward(y, x),
    "hardsigmoid": lambda x, y: F.hardsigmoid(x),
    "hardsigmoid backward": lambda x, y: aten.hardsigmoid_backward(y, x),
    "hardswish": lambda x, y: F.hardswish(x),
    "hardswish backward": lambda x, y: aten.hardswish_backward(y, x),
    "hardtanh": lambda x, y: F.hardtanh(x, -2, 3),
    "hardtanh backward": lambda x, y: aten.hardtanh_backward(y, x, -2, 3),
    "softshrink": lambda x, y: F.softshrink(x, 0.7),
    "softshrink backward": lambda x, y: aten.softshrink_backward(y, x, 0.7),
    "hardshrink": lambda x, y: F.hardshrink(x, 0.7),
    "hardshrink backward": lambda x, y: aten.hardshrink_backward(y, x, 0.7),
    "log sigmoid": lambda x, y: aten.log_sigmoid_forward(x)[0],
    "log sigmoid backward": lambda x, y: aten.log_sigmoid_backward(y, x, aten.log_sigmoid_forward(x)[1]),
    "round": lambda x, y: torch.round(x) + torch.round(y / 2),
    "frac": lambda x, y: aten.frac(x),
    "sign": lambda x, y: torch.sign(x) + torch.sgn(y),
    "isinf": lambda x, y: torch.isinf(x),
    "nan to num": lambda x, y: torch.nan_to_num(x, 0.5, 7.0, -3.0),
    "shifts": lambda x, y: (x.to(torch.int64) << 3) + (x.to(torch.int32) >> y.to(torch.int32)),
    "xlogy": lambda x, y: torch.xlogy(x, y.abs()) + torch.xlogy(0.0, y.abs()),
    "logaddexp": lambda x, y: torch.logaddexp(x, y),
    "remainder": lambda x, y: torch.remainder(x, y) + torch.remainder(x, -0.7) + aten.remainder(2.0, y),
    "fmod": lambda x, y: torch.fmod(x, y) + torch.fmod(y, 0.3),
    "remainder of integers": lambda x, y: (
        torch.remainder(x.to(torch.int64), 3) * torch.fmod(y.to(torch.int32), 2)
    ),
}
"""Of two tensors of one shape."""


def _both(forward: Any, backward: Any, *numbers: float) -> Callable[[Tensor, Tensor], tuple[Tensor, ...]]:
    def loss(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        made = [forward(x, y, n, *numbers) for n in range(3)]
        return *made, *(backward(made[min(n, 1)], x, y, n, *numbers) for n in range(3))

    return loss


def _probabilities(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    x, y, w = x.sigmoid(), (y > 0).to(x.dtype), y.exp()
    losses = [aten.binary_cross_entropy(x, y, weight, n) for weight in (None, w) for n in range(3)]
    return *losses, aten.binary_cross_entropy_backward(losses[0], x, y, w, 1)


LOSSES: Functions = {
    "mse": _both(aten.mse_loss, aten.mse_loss_backward),
    "smooth l1": _both(aten.smooth_l1_loss, aten.smooth_l1_loss_backward, 0.7),
    "l1 as smooth l1": _both(aten.smooth_l1_loss, aten.smooth_l1_loss_backward, 0.0),
    "huber": _both(aten.huber_loss, aten.huber_loss_backward, 1.7),
    "soft margin": _both(aten.soft_margin_loss, aten.soft_margin_loss_backward),
    "binary cross entropy": _probabilities,
    "with logits": lambda x, y: tuple(
        aten.binary_cross_entropy_with_logits(x, y.sigmoid(), *weights, n)
        for n, weights in enumerate([(None, None), (y.exp(), None), (y.exp(), y[0].exp())])
    ),
}
"""Of two tensors of one shape: reductions of all kinds, and gradients."""

PIXELS = torch.linspace(-2, 3, 2 * 4 * 5 * 6).reshape(2, 4, 5, 6).sin()


def _counted(count: int) -> Tensor:
    return torch.arange(count)


MOVES: Functions = {
    "roll": lambda x: torch.roll(x, (2, -1, 3), (1, 2, 1)),
    "roll the last dim": lambda x: torch.roll(x, -2, 3) + x,
    "roll and windows": lambda x: (
        torch.roll(x, 1, 2)[:, :, 1:].unflatten(2, (2, 2)).permute(0, 2, 1, 3, 4) * 2
    ),
    "flip": lambda x: torch.flip(x, (1, -1)),
    "flip of what is made": lambda x: torch.flip(x * 2, (-1,)) + x,
    "pad": lambda x: F.pad(x, (1, 2, 0, 3, 2, -1), value=7.0),
    "pad the last dim": lambda x: F.pad(x * 2, (1, -2)) + 1,
    "reflection": lambda x: F.pad(x, (2, 1, 3, 0), mode="reflect"),
    "replication": lambda x: F.pad(x, (2, 1, -1, 3), mode="replicate"),
    "unfold": lambda x: x.unfold(2, 3, 2) * 2,
    "unfold what is made": lambda x: (x + 1).unfold(3, 4, 1) * 2,
    "gradient of windows": lambda x: aten.unfold_backward(x.unfold(2, 3, 2) * 2, list(x.shape), 2, 3, 2),
    "columns": lambda x: F.unfold(x * 2, 3, padding=1),
    "columns with gaps": lambda x: F.unfold(x, (3, 2), dilation=(2, 1), padding=(2, 1), stride=(1, 2)) + 1,
    "columns of patches": lambda x: F.unfold(x, 2, stride=2) * 2,
    "sums of columns": lambda x: F.fold(F.unfold(x, 3, padding=1).sin(), x.shape[2:], 3, padding=1),
    "sums of columns with gaps": lambda x: F.fold(
        F.unfold(x, (3, 2), (2, 1), (2, 1), (1, 2)) * 2, x.shape[2:], (3, 2), (2, 1), (2, 1), (1, 2)
    ),
    "sums of patches": lambda x: F.fold(F.unfold(x, 2, stride=2) * 2, x.shape[2:], 2, stride=2),
    "gradient of windows with gaps": lambda x: aten.unfold_backward(
        x.unfold(3, 2, 3) * 2, list(x.shape), 3, 2, 3
    ),
    "pixel shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel unshuffle": lambda x: F.pixel_unshuffle(x[:, :, :4], 2),
    "repeat": lambda x: x.repeat(3, 1, 2, 1, 2),
    "nearest": lambda x: aten._unsafe_index(x, [None, None, _counted(10)[:, None] // 2, _counted(12) // 2]),
    "index by two": lambda x: x[:, _counted(6).reshape(2, 3) - 2, _counted(3) * 2 - 3] * 2,
    "index by two apart": lambda x: x[_counted(2), :, _counted(4)[:, None] - 2],
    "index behind a view": lambda x: x.permute(3, 0, 2, 1)[_counted(6), :, _counted(6) - 4],
}
"""Of a tensor of pixels."""

PLANE = torch.linspace(-2, 3, 3 * 70).reshape(3, 70).sin()
JOINED: Functions = {
    "parts of other sizes": lambda x: torch.cat([x[:, :1], x[:, 1:] - x[:, :-1], x * 2], 1).sin(),
    "rows of few parts": lambda x: torch.cat([x[:, :3] * 2, x[:, 5:7] + 1, x[:, 9:10]], 1),
    "few parts of pairs": lambda x: torch.cat([x[:, :10].view(3, 5, 2) * 2, x[:, :4].view(3, 2, 2) - 1], 1),
    "short scans": lambda x: torch.cat(
        [x.cumsum(0) - x, torch.cumprod(x * 0.5, 0), x.flip(0).cumsum(0).flip(0) * 2]
    ),
    "roll of what is made": lambda x: torch.roll(x * 2 + 1, 3, -1) * 3,
    "pad of what is made": lambda x: F.pad(x * 2 + 1, (1, 2)) * 3,
    "gradient of equal windows": lambda x: aten.unfold_backward(
        x[:, None].expand(-1, 3, -1) / 3, [3, 2 * 40 + 70], 1, 70, 40
    ),
}
"""Of a plane; what is made runs over other dims than the kernel, which is one."""

PRODUCTS: Functions = {
    "matrix by vector": lambda x, y: torch.mv(x.sigmoid(), y[0]) * 2,
    "vector by matrix": lambda x, y: torch.mm(y[:, :1].mT, x.sin()).exp(),
    "batch": lambda x, y: torch.bmm(x.view(2, 2, 8).sin(), y[:2, :, None]) + 1,
    "vector by vector": lambda x, y: torch.mm(x[:, :1], y[:1]).tanh(),
}
"""Of two tensors of one shape: products by one vector that are sums, or pointwise."""

REDUCTIONS: Functions = {
    "max": lambda x, y: tuple(x.max(1)),
    "min": lambda x, y: tuple(torch.min(x.round(), -1, keepdim=True)),
    "largest": lambda x, y: x.max(),
    "argmax": lambda x, y: (x.argmax(1), y.round().argmin(1, keepdim=True), x.round().argmax()),
    "any and all": lambda x, y: ((x > 1).any(1), (x > 1).all(0), x.any(), (y < 9).all()),
    "written at the largest": lambda x, y: (
        aten.scatter(y, 1, x.argmax(1, keepdim=True), x.amax(1, keepdim=True)),
        aten.scatter(x, -1, y.argmax(1, keepdim=True), x.amin(1, keepdim=True)),
    ),
    "product": lambda x, y: ((x * 0.1).prod(1), x.prod()),
    "logsumexp": lambda x, y: torch.logsumexp(x, (0, 1)) + torch.logsumexp(y, 1, keepdim=True),
    "short rows anywhere": lambda x, y: (
        torch.softmax(x.view(2, 4, 4), 1).transpose(1, 2).contiguous() * y.view(2, 4, 4)
    ),
    "deviation": lambda x, y: (x.std(1), *torch.std_mean(y, 1, correction=0, keepdim=True)),
    "norm": lambda x, y: (x.norm(dim=1), torch.linalg.vector_norm(y, 1, 0), y.norm(float("inf"))),
}
"""Of two tensors of one shape."""


def _pooled(kernel: int, stride: int, padding: int) -> Callable[[Tensor], tuple[Tensor, ...]]:
    def pools(x: Tensor) -> tuple[Tensor, ...]:
        window = [kernel] * 2, [stride] * 2, [padding] * 2
        most, at = aten.max_pool2d_with_indices(x, *window)
        mean = aten.avg_pool2d(x, *window)
        inside = aten.avg_pool2d(x, *window, False, False)
        return (
            *(most, at, mean, inside, aten.avg_pool2d(x[0], *window, False, True, 3)),
            aten.max_pool2d_with_indices_backward(mean, x, *window, [1, 1], False, at),
            aten.avg_pool2d_backward(most, x, *window, False, True, None),
            aten.avg_pool2d_backward(most, x, *window, False, False, None),
        )

    return pools


def _depthwise(x: Tensor) -> tuple[Tensor, ...]:
    """Of planes of channels: a bias, steps and holes, one dim, three."""
    w = x[0, :, :3, :2].reshape(-1, 1, 3, 2) * 0.5
    rows, groups = x[:, :, 0], x.shape[1]
    volume = x.unflatten(3, (2, 3))
    return (
        F.conv2d(x, w, x[1, :, 0, 0], padding=1, groups=groups),
        F.conv2d(x, w, None, stride=(2, 1), padding=(0, 1), dilation=(1, 2), groups=groups),
        F.conv1d(rows, w[:, :, 0], x[0, :, 1, 1], padding=1, groups=groups),
        F.conv3d(volume, w.view(-1, 1, 1, 3, 2), None, padding=1, groups=groups),
    )


def _in_three_dims(x: Tensor) -> tuple[Tensor, ...]:
    """Pools of the planes of channels, with holes, and windows that reach beyond the padding."""
    window = [2, 3, 2], [1, 2, 2], [1, 1, 0]
    most, at = aten.max_pool3d_with_indices(x[None], *window)
    back = aten.max_pool3d_with_indices_backward
    return (
        *(most, at, back(most, x[None], *window, [1, 1, 1], False, at)),
        aten.avg_pool3d(x, *window),
        aten.avg_pool3d(x, *window, True, False),
        aten.avg_pool3d(x, *window, True),
        aten.avg_pool3d_backward(most[0], x, *window, False, True, None),
        aten.avg_pool3d_backward(most[0], x, *window, False, False, None),
        aten._adaptive_avg_pool3d(x, [1, 3, 4]),
    )


def _with_holes(x: Tensor) -> tuple[Tensor, ...]:
    window = [3, 2], [2, 1], [1, 1], [2, 3]
    most, at = aten.max_pool2d_with_indices(x, *window)
    over = [3, 3], [2, 2], [1, 1], [1, 1], True
    beyond, there = aten.max_pool2d_with_indices(x, *over)
    back = aten.max_pool2d_with_indices_backward
    return most, at, back(most, x, *window, False, at), beyond, there, back(beyond, x, *over, there)


def _adaptive(rows: int, columns: int) -> Callable[[Tensor], tuple[Tensor, ...]]:
    def pools(x: Tensor) -> tuple[Tensor, ...]:
        mean = aten._adaptive_avg_pool2d(x, [rows, columns])
        return mean, aten._adaptive_avg_pool2d_backward(mean, x)

    return pools


POOLS: Functions = {
    f"windows of {k} by {stride}, padded {pad}": _pooled(k, stride, pad)
    for k, stride, pad in [(2, 2, 0), (3, 2, 1), (3, 1, 1), (2, 3, 0)]
} | {
    "three dims": _in_three_dims,
    "depthwise": _depthwise,
    "holes and beyond": _with_holes,
    "adaptive, equal parts": _adaptive(2, 3),
    "adaptive, unequal parts": _adaptive(3, 5),
    "adaptive, more parts than pixels": _adaptive(16, 7),
}
"""Of a tensor of pixels."""


def _quantised(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    scale = x.abs().amax(1, keepdim=True) / 127
    q = torch.clamp(torch.round(x / scale), -128, 127).to(torch.int8)
    return q, q.to(x.dtype) * scale + y, q.amax(1), q.to(torch.int64).sum(1)


NARROW: Functions = {
    "arithmetic": lambda a, b: (a + b, a * b - 3, a - b, -a, a.abs()),
    "bits": lambda a, b: (a & b, ~a, (a ^ 3) | b, a << 1, a >> 2),
    "order": lambda a, b: (torch.maximum(a, b), a.clamp(3, 100), a > b, a == b, a.sign()),
    "conversions": lambda a, b: (a.to(torch.float32) * 0.5, a.to(torch.int64) + b, b.to(torch.bool)),
    "reductions": lambda a, b: (a.amax(1), a.amin(0), a.sum(1), a.argmax(1), (a > 3).any(1)),
    "choices": lambda a, b: torch.where(a > b, a, b).to(torch.float64) + 1,
}
"""Of two tensors of integers of 8 or 16 bits."""
QUANTISED: Functions = {"quantised": _quantised, "bytes": lambda x, y: (y.abs() * 60).to(torch.uint8) + 1}
"""Of two tensors of floats."""
