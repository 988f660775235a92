"""Functions of the eleventh list from many fields."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def directions_and_sizes(w: Tensor, a: Tensor, b: Tensor, size: Tensor) -> Tensor:
    """Columns of a weight with a low-rank change, scaled to given sizes: [n, k], [n, r], [r, k], [k]."""
    moved = w + a @ b
    return moved * (size / moved.norm(dim=0))


def cosine_logits(q: Tensor, k: Tensor, heat: Tensor) -> Tensor:
    """Cosines of queries and keys over clamped temperatures: twice [n, heads, time, k], [heads]."""
    scale = heat.clamp(max=math.log(100)).exp()[:, None, None]
    return F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-1, -2) * scale


def shrinkage_step(x: Tensor, gradient: Tensor, last: Tensor) -> Tensor:
    """One accelerated step of iterated soft thresholds: three of [n, k]."""
    moved = x - 0.1 * gradient
    new = torch.sign(moved) * (moved.abs() - 0.05).clamp(min=0)
    return new + 0.6 * (new - last)


def tone_curve(x: Tensor, curve: Tensor) -> Tensor:
    """Values through curves of 32 linear pieces by channel: [n, c, points], [c, 33]."""
    at = x.clamp(0, 1) * 32
    low = at.floor().clamp(max=31).long()
    first = curve.expand(x.shape[0], -1, -1).gather(2, low)
    second = curve.expand(x.shape[0], -1, -1).gather(2, low + 1)
    return torch.lerp(first, second, at - low)


def bezier_points(p: Tensor, t: Tensor) -> Tensor:
    """Points of cubic curves: [curves, 4, 2], [points]."""
    u = 1 - t
    weight = torch.stack([u**3, 3 * u * u * t, 3 * u * t * t, t**3], -1)
    return (weight[None, :, :, None] * p[:, None]).sum(2)


def rounded_boxes(p: Tensor, centre: Tensor, half: Tensor) -> Tensor:
    """Distance of points from the nearest of some boxes: [points, 3], twice [boxes, 3]."""
    q = (p[:, None] - centre).abs() - half.abs()
    outside = q.clamp(min=0).square().sum(-1).add(1e-12).sqrt()
    return (outside + q.amax(-1).clamp(max=0)).amin(1) - 0.1


def token_loss(x: Tensor, label: Tensor, length: Tensor) -> Tensor:
    """Loss of tokens within their lengths, with a penalty of large normalisers: [n, time, words]."""
    total = torch.logsumexp(x, -1)
    loss = total - x.gather(-1, label[..., None]).squeeze(-1) + 1e-4 * total.square()
    inside = torch.arange(x.shape[1]) < length[:, None]
    return (loss * inside).sum() / inside.sum()


def pairs_of_captions(x: Tensor, y: Tensor, heat: Tensor, bias: Tensor) -> Tensor:
    """Sigmoid loss of all pairs of pictures and captions: two of [n, k]."""
    score = F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).T * heat.exp() + bias
    sign = 2 * torch.eye(len(x)) - 1
    return -F.logsigmoid(sign * score).sum() / len(x)


def variance_penalty(x: Tensor, y: Tensor) -> Tensor:
    """Two views close together, with spread of one in each dim: two of [n, k]."""
    spread = sum(F.relu(1 - torch.sqrt(t.var(0) + 1e-4)).mean() for t in (x, y))
    return F.mse_loss(x, y) + spread


def perplexity_of_codes(code: Tensor, x: Tensor) -> Tensor:
    """Chances of codes by distance, and how evenly they are used: [codes, k], [n, k]."""
    near = -(x.square().sum(1, keepdim=True) - 2 * x @ code.T + code.square().sum(1))
    p = torch.softmax(near, -1).mean(0)
    return torch.exp(-(p * torch.log(p + 1e-10)).sum())


def splat_covariances(q: Tensor, scale: Tensor) -> Tensor:
    """Covariances of gaussians from quaternions and logarithms of scales: [n, 4], [n, 3]."""
    w, x, y, z = F.normalize(q, dim=-1).unbind(-1)
    rows = [
        *(1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        *(2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        *(2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    ]
    turned = torch.stack(rows, -1).unflatten(-1, (3, 3)) * scale.exp()[:, None]
    return (turned[:, :, None] * turned[:, None]).sum(-1)


def step_error(k: Tensor, y: Tensor, new: Tensor) -> Tensor:
    """Norm of the error of an embedded Runge-Kutta step: [7, n, k], two of [n, k]."""
    weight = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
    error = sum(w * part for w, part in zip(weight, k.unbind(0), strict=True))
    bound = 1e-6 + 1e-3 * torch.maximum(y.abs(), new.abs())
    return (error / bound).square().mean(-1).sqrt()


def open_channel(depth: Tensor, width: Tensor, slope: Tensor) -> Tensor:
    """Flow in channels with sloping banks by Manning's formula: three of [n]."""
    area = depth * (width + 1.5 * depth)
    wet = width + 2 * depth * math.sqrt(1 + 1.5**2)
    return area * (area / wet) ** (2 / 3) * torch.sqrt(slope) / 0.03


def counts_loss(x: Tensor, count: Tensor) -> Tensor:
    """Loss of counts with more zeros than Poisson's: [n, k] twice."""
    rate = F.softplus(x)
    log = count * torch.log(rate + 1e-8) - rate - torch.lgamma(count + 1)
    none = torch.log(0.2 + 0.8 * torch.exp(-rate))
    return -torch.where(count == 0, none, math.log(0.8) + log).mean(-1)


def periodic_kernel(x: Tensor, y: Tensor, length: Tensor) -> Tensor:
    """Covariances of a periodic process: [n, k], [m, k], [k]."""
    s = torch.sin(math.pi * (x[:, None] - y)) / length
    return torch.exp(-2 * s.square().sum(-1))


def uncertain_tasks(x: Tensor, y: Tensor, log: Tensor) -> Tensor:
    """Losses of tasks weighted by learned uncertainties: [tasks, n] twice, [tasks]."""
    loss = F.smooth_l1_loss(x, y, reduction="none").mean(1)
    return (torch.exp(-log) * loss + log).sum()


def biased_scores(score: Tensor, table: Tensor, place: Tensor) -> Tensor:
    """Softmax of scores with biases of relative places: [n, heads, t, t], [places, heads], [t, t]."""
    return torch.softmax(score + table[place].permute(2, 0, 1), -1)


def gated_by_relu(x: Tensor, b: Tensor) -> Tensor:
    """Halves of rows, one gates the other one by its ReLU: [n, 2 k], [2 k]."""
    value, gate = (x + b).chunk(2, -1)
    return F.relu(gate) * value


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "directions and sizes": (directions_and_sizes, _of((768, 768), (768, 8), (8, 768), (768,)), True),
    "cosine logits": (cosine_logits, _of((4, 8, 128, 32), (4, 8, 128, 32), (8,)), True),
    "shrinkage step": (shrinkage_step, _of(*[(1000, 500)] * 3), True),
    "tone curve": (tone_curve, lambda: [torch.rand(8, 3, 10_000), torch.rand(3, 33)], False),
    "bezier points": (bezier_points, lambda: [torch.randn(1000, 4, 2), torch.rand(64)], True),
    "rounded boxes": (rounded_boxes, _of((2000, 3), (40, 3), (40, 3)), True),
    "token loss": (
        token_loss,
        lambda: [torch.randn(4, 50, 2000), torch.randint(2000, (4, 50)), torch.randint(50, (4,))],
        True,
    ),
    "pairs of captions": (pairs_of_captions, lambda: [*_of((512, 64), (512, 64))(), *torch.rand(2)], True),
    "variance penalty": (variance_penalty, _of((1000, 400), (1000, 400)), True),
    "perplexity of codes": (perplexity_of_codes, _of((256, 32), (2000, 32)), True),
    "covariances of splats": (splat_covariances, _of((20_000, 4), (20_000, 3)), True),
    "error of a step": (step_error, _of((7, 500, 200), (500, 200), (500, 200)), True),
    "open channel": (open_channel, lambda: list(torch.rand(3, 100_000) + 0.1), True),
    "loss of counts": (
        counts_loss,
        lambda: [torch.randn(1000, 200), torch.poisson(torch.full((1000, 200), 0.8))],
        False,
    ),
    "periodic kernel": (periodic_kernel, lambda: [*_of((500, 3), (400, 3))(), torch.rand(3) + 0.5], True),
    "uncertain tasks": (uncertain_tasks, _of((6, 60_000), (6, 60_000), (6,)), True),
    "biased scores": (
        biased_scores,
        lambda: [*_of((4, 8, 100, 100), (400, 8))(), torch.randint(400, (100, 100))],
        True,
    ),
    "gated by relu": (gated_by_relu, _of((1000, 1024), (1024,)), True),
}
