"""Functions of the seventh list, second part: flows, diffusion, capsules, mixtures, losses, updates."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from seventh import Made, _of
from torch import Tensor


def coupling(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """An affine coupling layer of a flow, and its log determinant, by alternate channels."""
    still, moved = x[:, 0::2], x[:, 1::2]
    size = 2 * torch.tanh(scale / 2)
    made = torch.stack([still, moved * torch.exp(size) + shift], 2).flatten(1, 2)
    return made.flatten(1) + size.flatten(1).sum(1, keepdim=True)


def planar_flow(x: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
    """Four planar flows in a row, with their log determinants."""
    total = torch.zeros_like(x[:, :1])
    for n in range(w.shape[0]):
        bent = torch.tanh(x @ w[n][:, None] + b[n])
        total = total + torch.log((1 + (1 - bent**2) * (w[n] * u[n]).sum()).abs() + 1e-4)
        x = x + u[n] * bent
    return x + total


def ddim(x: Tensor, noise: Tensor, step: Tensor) -> Tensor:
    """A deterministic step of a diffusion model, with thresholded samples."""
    now, before = (torch.cos(s * 1.2) ** 2 for s in (step, step * 0.9))
    now, before = now[:, None, None, None], before[:, None, None, None]
    first = ((x - torch.sqrt(1 - now) * noise) / torch.sqrt(now)).clamp(-1, 1)
    noise = (x - torch.sqrt(now) * first) / torch.sqrt(1 - now + 1e-4)
    return torch.sqrt(before) * first + torch.sqrt(1 - before) * noise


def weighted_velocity(x: Tensor, noise: Tensor, found: Tensor, step: Tensor) -> Tensor:
    """The loss of velocities, weighted by the ratio of signal and noise."""
    a, b = (f(step * math.pi / 2)[:, None, None, None] for f in (torch.cos, torch.sin))
    ratio = (a / (b + 1e-3)) ** 2
    weight = torch.minimum(ratio, ratio.new_full((), 5.0)) / (ratio + 1)
    return (weight * (found - (a * noise - b * x)) ** 2).mean((1, 2, 3))


def guided(with_text: Tensor, without: Tensor) -> Tensor:
    """Guidance without a classifier, rescaled to the deviation of the sample with text."""
    made = without + 7.5 * (with_text - without)
    share = with_text.std((1, 2, 3), keepdim=True) / made.std((1, 2, 3), keepdim=True)
    return made * (0.7 * share + 0.3)


def squashed(votes: Tensor) -> Tensor:
    """Three rounds of routing between capsules: [batch, from, to, width]."""
    logits = torch.zeros_like(votes[..., :1])
    made = votes[:, 0]
    for _ in range(3):
        total = (torch.softmax(logits, 2) * votes).sum(1, keepdim=True)
        square = (total * total).sum(-1, keepdim=True)
        out = total * square / (1 + square) * torch.rsqrt(square + 1e-6)
        logits = logits + (votes * out).sum(-1, keepdim=True)
        made = out[:, 0]
    return made


def splines(x: Tensor, weight: Tensor) -> Tensor:
    """The cubic bumps of a Kolmogorov-Arnold layer on eight knots, weighted by channel."""
    at = (x.clamp(-0.99, 0.99) + 1) * 4
    bumps = [F.relu(2 - (at - n).abs()) ** 3 - 4 * F.relu(1 - (at - n).abs()) ** 3 for n in range(8)]
    return (torch.stack(bumps, -1) * weight).sum(-1) / 6 + F.silu(x)


def sine_layers(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.sin(30 * (torch.sin(30 * (x @ w + b)) @ w.T)) * x


def maxout(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).unflatten(-1, (-1, 4)).amax(-1)


def highway(x: Tensor, gate: Tensor, new: Tensor) -> Tensor:
    share = torch.sigmoid(gate - 1)
    return F.layer_norm(share * F.elu(new) + (1 - share) * x, x.shape[-1:])


def modulated(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Feature-wise modulation after a norm of each channel, with a leaky activation."""
    x = (x - x.mean((2, 3), keepdim=True)) * torch.rsqrt(x.var((2, 3), keepdim=True) + 1e-5)
    return F.leaky_relu(x * (1 + scale[:, :, None, None]) + shift[:, :, None, None], 0.1)


def mixture(mean: Tensor, spread: Tensor, logit: Tensor, target: Tensor) -> Tensor:
    """Negative likelihood of a mixture of eight normal densities."""
    apart = (target[..., None] - mean) * torch.exp(-spread)
    density = -0.5 * apart**2 - spread - 0.5 * math.log(2 * math.pi)
    return -torch.logsumexp(density + F.log_softmax(logit, -1), -1).mean()


def squashed_policy(mean: Tensor, spread: Tensor, noise: Tensor) -> Tensor:
    """Actions of a squashed normal policy, with their log likelihood."""
    spread = spread.clamp(-5, 2)
    raw = mean + spread.exp() * noise
    chance = -0.5 * noise**2 - spread - 2 * (math.log(2) - raw - F.softplus(-2 * raw))
    return torch.tanh(raw) + chance.sum(-1, keepdim=True)


def categorical(logit: Tensor, reward: Tensor) -> Tensor:
    """The loss of a distribution over 51 returns against soft two-hot targets."""
    at = (reward.clamp(-4.9, 4.9) + 5) * 5
    near = F.relu(1 - (at[:, None] - torch.arange(51, dtype=logit.dtype)).abs())
    return -(near * F.log_softmax(logit, -1)).sum(-1).mean()


def circle_loss(x: Tensor, y: Tensor) -> Tensor:
    x, y = F.normalize(x, dim=-1), F.normalize(y, dim=-1)
    near, far = (x * y).sum(-1, keepdim=True), x @ y.T
    pull = -(1.25 - near).clamp(min=0).detach() * (near - 0.75) * 32
    push = (far + 0.25).clamp(min=0).detach() * (far - 0.25) * 32
    return F.softplus(torch.logsumexp(push, -1) + pull[:, 0]).mean()


def factorisation(x: Tensor, w: Tensor) -> Tensor:
    """A factorisation machine: [batch, fields, width]."""
    total = x.sum(1)
    pairs = 0.5 * (total * total - (x * x).sum(1)).sum(-1)
    return torch.sigmoid(pairs + (x * w).sum((1, 2)))


def poisson(x: Tensor, count: Tensor, offset: Tensor) -> Tensor:
    """The loss of a zero-inflated Poisson model."""
    rate, empty = F.softplus(x) + 1e-4, torch.sigmoid(offset)
    none = -torch.log(empty + (1 - empty) * torch.exp(-rate))
    some = rate - count * torch.log(rate) - torch.log(1 - empty + 1e-6)
    return torch.where(count < 0.5, none, some).mean()


def half_pruned(w: Tensor) -> Tensor:
    """Weights of which the larger two of each four stay."""
    parts = w.unflatten(-1, (-1, 4))
    size = parts.abs()
    beaten = (size[..., None, :] > size[..., :, None]).sum(-1)
    return torch.where(beaten < 2, parts, 0.0).flatten(-2)


def ada_belief(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * (g - m) ** 2 + 1e-12
    step = (m / 0.3) / (torch.sqrt(v / 0.01) + 1e-8)
    return torch.stack([p * (1 - 1e-4) - 1e-3 * step, m, v])


def runge_kutta(x: Tensor, a: Tensor) -> Tensor:
    """Two steps of fourth order of a small neural differential equation, by channel."""

    def slope(y: Tensor) -> Tensor:
        return torch.tanh(y * a[0] + a[1]) * a[2] - 0.1 * y

    for _ in range(2):
        first = slope(x)
        second = slope(x + 0.05 * first)
        third = slope(x + 0.05 * second)
        x = x + 0.1 / 6 * (first + 2 * second + 2 * third + slope(x + 0.1 * third))
    return x


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "affine coupling": (coupling, _of((8, 32, 64, 64), (8, 16, 64, 64), (8, 16, 64, 64)), True),
    "planar flow": (planar_flow, _of((20_000, 16), (4, 16), (4, 16), (4,)), True),
    "diffusion step": (
        ddim,
        lambda: [torch.randn(8, 4, 96, 96), torch.randn(8, 4, 96, 96), torch.rand(8)],
        True,
    ),
    "velocity loss": (
        weighted_velocity,
        lambda: [*(torch.randn(16, 4, 64, 64) for _ in range(3)), torch.rand(16)],
        True,
    ),
    "guided sample": (guided, _of((8, 4, 96, 96), (8, 4, 96, 96)), True),
    "capsules": (squashed, _of((16, 128, 10, 16)), True),
    "spline layer": (splines, _of((4096, 64), (64, 8)), True),
    "sine layers": (
        sine_layers,
        lambda: [torch.rand(2048, 128), *(torch.rand(128, 128) / 900, torch.rand(128))],
        True,
    ),
    "maxout": (maxout, _of((1024, 256), (256, 1024)), True),
    "highway": (highway, _of(*[(2048, 256)] * 3), True),
    "modulated channels": (modulated, _of((8, 64, 40, 40), (8, 64), (8, 64)), True),
    "mixture density": (mixture, _of(*[(20_000, 8)] * 3, (20_000,)), True),
    "squashed policy": (squashed_policy, _of(*[(30_000, 8)] * 3), True),
    "categorical returns": (categorical, _of((8192, 51), (8192,)), True),
    "circle loss": (circle_loss, _of((512, 128), (512, 128)), True),
    "factorisation machine": (factorisation, _of((2048, 24, 16), (24, 16)), True),
    "counts with zeros": (
        poisson,
        lambda: [torch.randn(512, 512), torch.rand(512, 512) * 5, torch.randn(512, 512)],
        True,
    ),
    "half pruned": (half_pruned, _of((1024, 1024)), False),
    "ada belief": (
        ada_belief,
        lambda: [*(torch.randn(512, 1024) for _ in range(3)), torch.rand(512, 1024)],
        False,
    ),
    "runge kutta": (runge_kutta, _of((2048, 256), (3, 256)), True),
}
