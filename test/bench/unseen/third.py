"""Functions of the third list, first part: norms, gates, losses, pools, scans, indexed rows, masks."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def _numbers(shape: tuple[int, ...], below: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.randint(0, below, shape, dtype=dtype)


def weight_norm(v: Tensor, g: Tensor) -> Tensor:
    return v * (g / v.norm(dim=1, keepdim=True))


def min_max(x: Tensor) -> Tensor:
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return (x - low) / (high - low + 1e-6)


def response(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    size = x.norm(dim=(1, 2), keepdim=True)
    return gamma * (x * (size / (size.mean(-1, keepdim=True) + 1e-6))) + beta + x


def gated_groups(x: Tensor, z: Tensor, w: Tensor) -> Tensor:
    y = (x * F.silu(z)).unflatten(-1, (8, -1))
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).flatten(-2) * w


def clamped_gate(x: Tensor) -> Tensor:
    gate, up = x[..., ::2].clamp(max=7.0), x[..., 1::2].clamp(-7.0, 7.0)
    return gate * torch.sigmoid(gate * 1.702) * (up + 1)


def thresholds(x: Tensor) -> Tensor:
    return F.celu(x, 0.5) + F.threshold(x, 0.1, -0.2)


def shrinks(x: Tensor) -> Tensor:
    return F.hardshrink(x, 0.3) - F.softshrink(x, 0.2) * F.tanhshrink(x)


def excite(x: Tensor, down: Tensor, up: Tensor) -> Tensor:
    return x * torch.sigmoid(F.relu(x.mean((2, 3)) @ down) @ up)[:, :, None, None]


def snake(x: Tensor, a: Tensor) -> Tensor:
    return x + torch.sin(x * a[:, None]) ** 2 / (a[:, None] + 1e-9)


def contrastive(x: Tensor, y: Tensor) -> Tensor:
    scores = F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).T / 0.07
    labels = torch.arange(x.shape[0])
    return (F.cross_entropy(scores, labels) + F.cross_entropy(scores.T, labels)) / 2


def segmentation(x: Tensor, labels: Tensor) -> Tensor:
    weight = torch.linspace(0.5, 1.5, x.shape[1]).to(x)
    return F.cross_entropy(x, labels, weight=weight, ignore_index=0)


def gaussian(x: Tensor, y: Tensor, variance: Tensor) -> Tensor:
    return F.gaussian_nll_loss(x, y, F.softplus(variance))


def quantiles(x: Tensor, y: Tensor) -> Tensor:
    q = torch.tensor([0.1, 0.25, 0.5, 0.75, 0.9]).to(x)
    error = y[..., None] - x
    return torch.maximum(q * error, (q - 1) * error).sum(-1).mean()


def distilled(student: Tensor, teacher: Tensor) -> Tensor:
    target = F.log_softmax(teacher / 2, -1)
    return F.kl_div(F.log_softmax(student / 2, -1), target, reduction="batchmean", log_target=True) * 4


def variation(x: Tensor) -> Tensor:
    return (x[..., 1:] - x[..., :-1]).abs().mean() + (x[..., 1:, :] - x[..., :-1, :]).abs().mean()


def pyramid(x: Tensor) -> Tensor:
    once = F.max_pool2d(x, 5, 1, 2)
    twice = F.max_pool2d(once, 5, 1, 2)
    return torch.cat([x, once, twice], 1)


def rendered(density: Tensor, colour: Tensor) -> Tensor:
    alpha = 1 - torch.exp(-F.relu(density) * 0.1)
    left = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
    return ((alpha * left)[..., None] * torch.sigmoid(colour)).sum(1)


def segment_sums(x: Tensor) -> Tensor:
    total = x.cumsum(-1)
    mask = torch.ones(x.shape[-1], x.shape[-1], dtype=torch.bool).tril()
    return torch.exp((total[..., :, None] - total[..., None, :]).masked_fill(~mask, -math.inf))


def relative_bias(scores: Tensor, table: Tensor) -> Tensor:
    size, heads = scores.shape[-1], table.shape[1]
    at = torch.arange(size)
    bias = table[(at[:, None] - at[None] + size - 1).view(-1)].view(size, size, heads).permute(2, 0, 1)
    return torch.softmax(scores + bias[None], -1)


def routed(x: Tensor, at: Tensor) -> Tensor:
    return torch.zeros_like(x).scatter_add(1, at, x[:, : at.shape[1]]) / 2


def group_means(x: Tensor, at: Tensor) -> Tensor:
    sums = x.new_zeros(1024, x.shape[1]).index_add(0, at, x)
    return sums / torch.bincount(at, minlength=1024).clamp(min=1)[:, None]


def written_rows(x: Tensor, y: Tensor) -> Tensor:
    made = x * 2
    made[torch.arange(y.shape[0]) * 2] = y.tanh()
    return made


def masked_mean(x: Tensor, lengths: Tensor) -> Tensor:
    mask = (torch.arange(x.shape[1])[None] < lengths[:, None])[..., None]
    return (x * mask).sum(1) / mask.sum(1)


def window_softmax(scores: Tensor) -> Tensor:
    at = torch.arange(scores.shape[-1])
    far = (at[:, None] - at[None]).abs() > 64
    return torch.softmax((torch.tanh(scores / 30) * 30).masked_fill(far, -math.inf), -1)


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "weight norm": (weight_norm, _of((2048, 1024), (2048, 1)), True),
    "layer norm of planes": (lambda x: F.layer_norm(x, (48, 48)), _of((16, 64, 48, 48)), True),
    "local response norm": (lambda x: F.local_response_norm(x, 5), _of((8, 32, 48, 48)), True),
    "between minimum and maximum": (min_max, _of((2048, 1024)), True),
    "global response norm": (response, _of((8, 28, 28, 256), (256,), (256,)), True),
    "gated group norm": (gated_groups, _of((2048, 1024), (2048, 1024), (1024,)), True),
    "clamped gate of pairs": (clamped_gate, _of((2048, 2048)), True),
    "parametric relu": (F.prelu, lambda: [torch.randn(16, 64, 48, 48), torch.rand(64)], True),
    "celu and threshold": (thresholds, _of((2048, 1024)), True),
    "shrinks": (shrinks, _of((2048, 1024)), True),
    "squeeze and excite": (excite, _of((16, 64, 48, 48), (64, 16), (16, 64)), True),
    "snake": (snake, lambda: [torch.randn(8, 64, 4096), torch.rand(64) + 0.1], True),
    "contrastive loss": (contrastive, _of((1024, 128), (1024, 128)), True),
    "segmentation loss": (
        segmentation,
        lambda: [torch.randn(8, 21, 96, 96), _numbers((8, 96, 96), 21)],
        True,
    ),
    "gaussian loss": (gaussian, _of((1024, 1024), (1024, 1024), (1024, 1024)), True),
    "quantile loss": (quantiles, _of((512, 512, 5), (512, 512)), True),
    "distillation loss": (distilled, _of((1024, 1000), (1024, 1000)), True),
    "total variation": (variation, _of((8, 3, 256, 256)), True),
    "average pool 1d, padded": (lambda x: F.avg_pool1d(x.tanh(), 7, 3, 3), _of((16, 64, 2048)), True),
    "average pool 3d": (lambda x: F.avg_pool3d(x, 3, 2, 1) * 2, _of((4, 16, 32, 32, 32)), True),
    "power average pool": (lambda x: F.lp_pool2d(x, 2, 3, 2), _of((8, 32, 64, 64)), True),
    "adaptive average pool": (lambda x: F.adaptive_avg_pool2d(x, 7), _of((16, 64, 50, 50)), True),
    "adaptive maximum pool": (lambda x: F.adaptive_max_pool2d(x, 6), _of((16, 64, 50, 50)), True),
    "pyramid of pools": (pyramid, _of((8, 32, 40, 40)), True),
    "running maximum": (lambda x: x.cummax(-1).values - x, _of((512, 2000)), True),
    "running mean of the first": (
        lambda x: x.cumsum(0) / torch.arange(1, x.shape[0] + 1)[:, None],
        _of((2000, 512)),
        True,
    ),
    "rendered rays": (rendered, _of((4096, 64), (4096, 64, 3)), True),
    "segment sums": (segment_sums, lambda: [-torch.rand(64, 128)], True),
    "relative positions": (relative_bias, _of((32, 8, 64, 64), (127, 8)), True),
    "scatter along rows": (
        routed,
        lambda: [torch.randn(1024, 1024), _numbers((1024, 512), 1024)],
        True,
    ),
    "bags of embeddings": (
        lambda at, w: F.embedding_bag(at, w, mode="mean"),
        lambda: [_numbers((2048, 16), 5000), torch.randn(5000, 128)],
        True,
    ),
    "means of groups": (group_means, lambda: [torch.randn(16384, 128), _numbers((16384,), 1024)], True),
    "written rows": (written_rows, _of((2048, 1024), (512, 1024)), True),
    "mean under lengths": (
        masked_mean,
        lambda: [torch.randn(32, 256, 256), _numbers((32,), 256) + 1],
        True,
    ),
    "softmax of a window": (window_softmax, _of((16, 384, 384)), True),
}
"""Name: the function, its tensors, and whether it has gradients."""
