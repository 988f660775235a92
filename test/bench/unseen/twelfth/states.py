"""Functions of the twelfth list about graphs, policies, few bits, samplers and updates."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]
NF4 = (
    *(-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0),
    *(0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.7230, 1.0),
)


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def four_aggregates(x: Tensor, node: Tensor) -> Tensor:
    """Mean, spread, smallest and largest of each node's messages: [edges, k], [edges]."""
    at, nodes = node[:, None].expand_as(x), 1000
    zero = x.new_zeros(nodes, x.shape[1])
    mean = zero.scatter_reduce(0, at, x, "mean", include_self=False)
    square = zero.scatter_reduce(0, at, x * x, "mean", include_self=False)
    low = zero.scatter_reduce(0, at, x, "amin", include_self=False)
    high = zero.scatter_reduce(0, at, x, "amax", include_self=False)
    return torch.cat([mean, (square - mean * mean).clamp(min=1e-5).sqrt(), low, high], 1)


def smeared_messages(x: Tensor, distance: Tensor, w: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Messages weighted by filters of smeared distances: [nodes, k], [edges], [32, k], [edges] twice."""
    centre = torch.linspace(0, 10, 32)
    near = torch.exp(-4 * (distance[:, None] - centre).square())
    cut = 0.5 * (torch.cos(distance * (math.pi / 10)) + 1) * (distance < 10)
    message = x[source] * (near @ w) * cut[:, None]
    return torch.zeros_like(x).index_add(0, target, message)


def projected_returns(p: Tensor, reward: Tensor, done: Tensor) -> Tensor:
    """Distributions of returns moved by rewards and put back on 51 atoms: [n, 51], [n] twice."""
    atom = torch.linspace(-10, 10, 51)
    to = (reward[:, None] + 0.99 * (1 - done)[:, None] * atom).clamp(-10, 10)
    place = (to + 10) / 0.4
    weight = (1 - (place[:, None] - torch.arange(51)[:, None]).abs()).clamp(min=0)
    return (weight * p[:, None]).sum(-1)


def stratified(priority: Tensor, luck: Tensor) -> Tensor:
    """Places of a replay buffer drawn by priority from equal strata: [n], [draws]."""
    total = priority.pow(0.6).cumsum(0)
    at = (torch.arange(len(luck)) + luck) / len(luck) * total[-1]
    return torch.searchsorted(total, at)


def retraced(q: Tensor, v: Tensor, reward: Tensor, ratio: Tensor) -> Tensor:
    """Targets of retrace by clipped ratios, a loop over 16 steps: [time, n] each."""
    c = 0.95 * ratio.clamp(max=1)
    step = reward + 0.99 * v - q
    total = torch.zeros_like(q[0])
    out: list[Tensor] = []
    for i in reversed(range(len(q))):
        total = step[i] + 0.99 * c[i] * total
        out.append(q[i] + total)
    return torch.stack(out[::-1])


def squashed_actions(x: Tensor, noise: Tensor, q: Tensor) -> Tensor:
    """Entropy-regularised loss of squashed gaussian actions: [n, 2 actions], [n, actions], [2, n]."""
    mean, log = x.chunk(2, -1)
    log = -5 + 3.5 * (torch.tanh(log) + 1)
    raw = mean + log.exp() * noise
    chance = (-0.5 * noise.square() - log - 0.9189 - 2 * (0.6931 - raw - F.softplus(-2 * raw))).sum(-1)
    return 0.2 * chance - q.amin(0)


def normal_floats(packed: Tensor, scale: Tensor, x: Tensor) -> Tensor:
    """A layer of 4-bit normal floats in blocks of 64: [o, k / 2] of bytes, [o, k / 64], [n, k]."""
    both = torch.stack([packed >> 4, packed & 15], -1).flatten(1)
    w = torch.tensor(NF4, dtype=x.dtype)[both.long()]
    w = (w.unflatten(1, (-1, 64)) * scale[..., None]).flatten(1)
    return x @ w.T


def group_quantised(w: Tensor) -> Tensor:
    """Weights rounded to 16 levels with zero points in groups of 32: [o, k]."""
    g = w.unflatten(1, (-1, 32))
    low, high = g.amin(-1, keepdim=True), g.amax(-1, keepdim=True)
    scale = (high - low).clamp(min=1e-5) / 15
    zero = (-low / scale).round().clamp(0, 15)
    return (((g / scale).round() + zero).clamp(0, 15) - zero).mul(scale).flatten(1)


def eight_bit_state(x: Tensor, table: Tensor) -> Tensor:
    """Codes of an optimizer's state in blocks of 256: [n], sorted [255]."""
    g = x.view(-1, 256)
    part = g / g.abs().amax(1, keepdim=True).clamp(min=1e-12)
    return torch.bucketize(part, table).to(torch.uint8)


def half_products(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Halves of odd rows in bf16, one gated by the GELU of the other: [n, 2 k], [2 k] twice."""
    a, g = (x * w + b).chunk(2, -1)
    return a * F.gelu(g, approximate="tanh")


def binned_numbers(x: Tensor, edge: Tensor) -> Tensor:
    """Piecewise linear codes of numbers, thermometers with a last part: [n, f], sorted [f, bins + 1]."""
    low, high = edge[:, :-1], edge[:, 1:]
    return ((x[..., None] - low) / (high - low)).clamp(0, 1)


def rational(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Rational functions of degrees 5 and 4 by group: [n, groups, k], [6, groups], [4, groups]."""
    top = a[5, :, None]
    for i in range(4, -1, -1):
        top = top * x + a[i, :, None]
    low = b[3, :, None]
    for i in range(2, -1, -1):
        low = low * x + b[i, :, None]
    return top / (1 + (low * x).abs())


def rescaled_guidance(plain: Tensor, asked: Tensor) -> Tensor:
    """Guided noise brought back to the spread of the asked one: [n, c, h, w] twice."""
    guided = plain + 7.5 * (asked - plain)
    dims = (1, 2, 3)
    scaled = guided * (asked.std(dims, keepdim=True) / guided.std(dims, keepdim=True))
    return 0.7 * scaled + 0.3 * guided


def solver_step(x: Tensor, now: Tensor, before: Tensor, level: Tensor) -> Tensor:
    """A second-order step of a diffusion solver, clamped by picture: three of [n, c, h, w], [n, 3]."""
    s = torch.exp(level)[..., None, None, None]
    a, b, r = s[:, 0], s[:, 1], s[:, 2]
    limit = now.abs().amax((1, 2, 3), keepdim=True).clamp(max=1.5)
    clean = torch.minimum(torch.maximum(now, -limit), limit) / limit
    return a / b * x - a * torch.expm1(-r) * (clean + 0.5 * (clean - before) / r)


def two_averages(p: Tensor, g: Tensor, fast: Tensor, slow: Tensor, v: Tensor) -> Tensor:
    """An update with fast and slow averages of gradients: five of [n, k]."""
    fast = torch.lerp(fast, g, 0.1)
    slow = torch.lerp(slow, g, 1e-4)
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * ((fast / 0.19 + 5 * slow) / (torch.sqrt(v / 0.002) + 1e-8) + 0.1 * p)


def sharpness_step(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Three gradients scaled to one joint norm, adaptive to the weights' size: [n, k], [k], [k, m]."""
    size = torch.stack([(t.abs() * t).norm() for t in (a, b, c)]).norm()
    return torch.cat([(t.square() * t * (0.05 / (size + 1e-12))).flatten() for t in (a, b, c)])


def whitened_columns(x: Tensor, w: Tensor) -> Tensor:
    """Columns of a transposed matrix less their mean, over their size: [n, k] of [k, n], [k]."""
    x = x.T
    off = x - x.mean(0)
    return w * off / (off.square().sum(0, keepdim=True).sqrt() + 1e-6)


def column_scales(x: Tensor, y: Tensor) -> Tensor:
    """Largest element of each column of two factors, one transposed, in int8 steps: [n, k], [k, n]."""
    size = torch.maximum(x.abs().amax(0), y.T.abs().amax(0)) / 127
    return (x / size).round().clamp(-127, 127).to(torch.int8)


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "four aggregates": (four_aggregates, lambda: [torch.randn(8000, 32), torch.randint(1000, (8000,))], True),
    "smeared messages": (
        smeared_messages,
        lambda: [
            *(torch.randn(1000, 64), 12 * torch.rand(8000), torch.randn(32, 64)),
            *torch.randint(1000, (2, 8000)),
        ],
        True,
    ),
    "projected atoms": (
        projected_returns,
        lambda: [
            torch.softmax(torch.randn(1024, 51), -1),
            torch.randn(1024),
            (torch.rand(1024) < 0.1).float(),
        ],
        True,
    ),
    "stratified": (stratified, lambda: [torch.rand(100_000) + 0.01, torch.rand(2048)], False),
    "retraced": (retraced, lambda: [*torch.randn(3, 16, 5000), torch.rand(16, 5000) * 2], True),
    "squashed actions": (squashed_actions, _of((8000, 12), (8000, 6), (2, 8000)), True),
    "layer of normal floats": (
        normal_floats,
        lambda: [
            torch.randint(256, (512, 512), dtype=torch.uint8),
            torch.rand(512, 16),
            torch.randn(8, 1024),
        ],
        False,
    ),
    "group quantised": (group_quantised, _of((768, 1024)), False),
    "eight-bit state": (
        eight_bit_state,
        lambda: [torch.randn(2048 * 256), torch.sort(2 * torch.rand(255) - 1).values],
        False,
    ),
    "half products": (
        half_products,
        lambda: [t.bfloat16() for t in _of((512, 2730), (2730,), (2730,))()],
        True,
    ),
    "binned numbers": (
        binned_numbers,
        lambda: [torch.randn(3000, 20), torch.sort(torch.randn(20, 13)).values],
        True,
    ),
    "rational": (rational, _of((500, 8, 96), (6, 8), (4, 8)), True),
    "rescaled guidance": (rescaled_guidance, _of((4, 4, 96, 96), (4, 4, 96, 96)), True),
    "solver step": (solver_step, _of(*[(8, 4, 64, 64)] * 3, (8, 3)), True),
    "two averages": (two_averages, lambda: [*torch.randn(4, 700, 700), torch.rand(700, 700)], False),
    "sharpness": (sharpness_step, _of((600, 500), (500,), (500, 400)), False),
    "whitened columns": (whitened_columns, _of((300, 2000), (300,)), True),
    "column scales": (column_scales, _of((1000, 400), (400, 1000)), False),
}
