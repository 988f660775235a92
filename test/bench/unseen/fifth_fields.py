"""Functions of the fifth list, second part: images, recurrences, attention, norms, losses, updates, space."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def _rand(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.rand(shape) for shape in shapes]


def bilateral(x: Tensor) -> Tensor:
    wide = F.pad(x, (2, 2, 2, 2), mode="reflect")
    near = wide.unfold(2, 5, 1).unfold(3, 5, 1).flatten(-2)
    weight = torch.exp(-((near - x[..., None]) ** 2) / 0.1)
    return (weight * near).sum(-1) / weight.sum(-1)


def corners(x: Tensor) -> Tensor:
    """Harris' measure of corners."""
    dx = F.pad(x[..., 2:] - x[..., :-2], (1, 1))
    dy = F.pad(x[..., 2:, :] - x[..., :-2, :], (0, 0, 1, 1))
    xx, yy, xy = (F.avg_pool2d(t, 5, 1, 2) for t in (dx * dx, dy * dy, dx * dy))
    return xx * yy - xy * xy - 0.05 * (xx + yy) ** 2


def letterbox(x: Tensor) -> Tensor:
    small = F.interpolate(x, size=(96, 128), mode="bilinear", align_corners=False)
    return F.pad(small, (0, 0, 16, 16), value=0.447) * 2 - 1


def block_transform(x: Tensor, basis: Tensor, table: Tensor) -> Tensor:
    """Blocks of 8 x 8 pixels, transformed, quantised, and transformed back, as in JPEG."""
    blocks = x.unflatten(1, (-1, 8)).unflatten(3, (-1, 8)).transpose(2, 3)
    made = basis @ blocks @ basis.T
    made = (made / table).round() * table
    return (basis.T @ made @ basis).transpose(2, 3).flatten(3).flatten(1, 2)


def gru_steps(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Tensor:
    made = []
    for step in (x @ w).unbind(1):
        r, z, n = step.chunk(3, -1)
        hr, hz, hn = (h @ u).chunk(3, -1)
        z = torch.sigmoid(z + hz)
        h = (1 - z) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + z * h
        made.append(h)
    return torch.stack(made, 1)


def leaky_spikes(x: Tensor) -> Tensor:
    """Neurons that leak and fire, with a smooth gradient."""
    v, made = torch.zeros_like(x[:, 0]), []
    for step in x.unbind(1):
        v = 0.9 * v + step
        soft = torch.sigmoid(4 * (v - 1))
        spike = soft + ((v > 1).to(x) - soft).detach()
        v = v * (1 - spike)
        made.append(spike)
    return torch.stack(made, 1)


def differential_attention(q: Tensor, k: Tensor, v: Tensor, share: Tensor) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    first, second = torch.softmax(scores.masked_fill(mask, -math.inf), -1).chunk(2, 1)
    made = (first - torch.sigmoid(share)[:, None, None] * second) @ v
    return made * torch.rsqrt(made.pow(2).mean(-1, keepdim=True) + 1e-5) * 0.2


def local_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Blocks of 64 queries see their own block of keys and the one before."""
    blocks = [t.unflatten(2, (-1, 64)) for t in (q, k, v)]
    q = blocks[0]
    k, v = (torch.cat([F.pad(t, (0, 0, 0, 0, 1, 0))[:, :, :-1], t], 3) for t in blocks[1:])
    at = torch.arange(128)
    far = at[64:, None] - at[None]
    scores = (q @ k.mT / 8).masked_fill((far < 0) | (far >= 64), -math.inf)
    return (torch.softmax(scores, -1) @ v).flatten(2, 3)


def talking_heads(scores: Tensor, before: Tensor, after: Tensor) -> Tensor:
    mixed = torch.einsum("bhij,hg->bgij", scores, before)
    return torch.einsum("bgij,gh->bhij", torch.softmax(mixed, -1), after)


def cosine_scores(q: Tensor, k: Tensor, heat: Tensor, bias: Tensor) -> Tensor:
    scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
    return torch.softmax(scores * heat.clamp(max=4.6).exp()[:, None, None] + bias, -1)


def pixel_norm(x: Tensor, w: Tensor) -> Tensor:
    x = x * w[:, None, None]
    return F.leaky_relu(x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-8), 0.2) * math.sqrt(2)


def spectral_norm(w: Tensor, u: Tensor, x: Tensor) -> Tensor:
    with torch.no_grad():
        u = F.normalize(w @ F.normalize(w.T @ u, dim=0), dim=0)
        v = F.normalize(w.T @ u, dim=0)
        u = F.normalize(w @ v, dim=0)
    return x @ (w / torch.dot(u, w @ v)).T


def adaptive_norm(x: Tensor, shift: Tensor, scale: Tensor, gate: Tensor) -> Tensor:
    """The modulated norm of a diffusion transformer, and its gate."""
    made = F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale[:, None]) + shift[:, None]
    return x + gate[:, None] * made


def dice_and_focal(x: Tensor, y: Tensor) -> Tensor:
    target = (y > 0).to(x)
    p = torch.sigmoid(x)
    both = (p * target).sum((1, 2))
    dice = 1 - (2 * both + 1) / (p.sum((1, 2)) + target.sum((1, 2)) + 1)
    hit = p * target + (1 - p) * (1 - target)
    return dice.mean() - ((1 - hit) ** 2 * torch.log(hit.clamp(min=1e-7))).mean()


def wing(x: Tensor, y: Tensor) -> Tensor:
    far = (x - y).abs()
    return torch.where(far < 1, torch.log1p(far / 0.5), far - 1 + math.log1p(2)).mean()


def redundancy(x: Tensor, y: Tensor) -> Tensor:
    """The loss of Barlow twins."""
    x, y = ((t - t.mean(0)) / (t.std(0) + 1e-5) for t in (x, y))
    both = x.T @ y / x.shape[0]
    on = (both.diagonal() - 1).pow(2).sum()
    return on + 5e-3 * (both.pow(2).sum() - both.diagonal().pow(2).sum())


def hardest_triplets(x: Tensor, labels: Tensor) -> Tensor:
    square = (x * x).sum(1)
    far = (square[:, None] + square[None] - 2 * x @ x.T).clamp(min=1e-6).sqrt()
    same = labels[:, None] == labels[None]
    worst = far.masked_fill(~same, -math.inf).amax(1)
    nearest = far.masked_fill(same, math.inf).amin(1)
    return F.softplus(worst - nearest).mean()


def lamb(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
    m, v = m * 0.9 + g * 0.1, v * 0.999 + g * g * 0.001
    step = (m / 0.1) / ((v / 0.001).sqrt() + 1e-6) + 0.01 * p
    return p - 1e-3 * (p.norm() / step.norm().clamp(min=1e-6)).clamp(max=10) * step


def newton_schulz(g: Tensor) -> Tensor:
    """An update with equal singular values, as in Muon."""
    x = g / (g.norm() + 1e-7)
    for _ in range(3):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def harmonics(x: Tensor) -> Tensor:
    """Real spherical harmonics up to degree 2."""
    x, y, z = F.normalize(x, dim=-1).unbind(-1)
    made = [
        torch.full_like(x, 0.28209479),
        0.48860251 * y,
        0.48860251 * z,
        0.48860251 * x,
        1.09254843 * x * y,
        1.09254843 * y * z,
        0.31539157 * (3 * z * z - 1),
        1.09254843 * x * z,
        0.54627422 * (x * x - y * y),
    ]
    return torch.stack(made, -1)


def hits(origin: Tensor, towards: Tensor, triangles: Tensor) -> Tensor:
    """The nearest triangle on each ray, by Moeller and Trumbore."""
    a, b, c = triangles.unbind(1)
    e1, e2 = b - a, c - a
    p = torch.linalg.cross(towards[:, None], e2[None].expand(towards.shape[0], -1, -1))
    inverse = 1 / (e1 * p).sum(-1)
    s = origin[:, None] - a
    u = (s * p).sum(-1) * inverse
    q = torch.linalg.cross(s, e1[None].expand_as(s))
    v = (towards[:, None] * q).sum(-1) * inverse
    t = (e2 * q).sum(-1) * inverse
    return torch.where((u >= 0) & (v >= 0) & (u + v <= 1) & (t > 0), t, 1e3).amin(1)


def normals(depth: Tensor) -> Tensor:
    """Normals of the surface that an image of depths shows."""
    dx = (depth[:, 1:-1, 2:] - depth[:, 1:-1, :-2]) / 2
    dy = (depth[:, 2:, 1:-1] - depth[:, :-2, 1:-1]) / 2
    return F.normalize(torch.stack([-dx, -dy, torch.ones_like(dx)], 1), dim=1)


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "bilateral filter": (bilateral, _rand((2, 3, 96, 96)), True),
    "corners": (corners, _rand((8, 1, 192, 192)), True),
    "letterbox": (letterbox, _rand((4, 3, 192, 256)), True),
    "block transform": (
        block_transform,
        lambda: [
            torch.rand(8, 256, 256),
            torch.linalg.qr(torch.randn(8, 8)).Q,
            torch.rand(8, 8) * 0.2 + 0.05,
        ],
        False,
    ),
    "steps of a GRU": (gru_steps, _of((64, 8, 128), (64, 128), (128, 384), (128, 384)), True),
    "leaky spikes": (leaky_spikes, _of((64, 12, 1024)), True),
    "differential attention": (
        differential_attention,
        _of((2, 8, 192, 32), (2, 8, 192, 32), (2, 4, 192, 64), (4,)),
        True,
    ),
    "local attention": (local_attention, _of(*[(2, 4, 512, 64)] * 3), True),
    "talking heads": (talking_heads, _of((4, 8, 192, 192), (8, 8), (8, 8)), True),
    "cosine scores": (cosine_scores, _of((16, 8, 64, 32), (16, 8, 64, 32), (8,), (8, 64, 64)), True),
    "pixel norm": (pixel_norm, _of((8, 64, 48, 48), (64,)), True),
    "spectral norm": (spectral_norm, _of((512, 512), (512,), (256, 512)), True),
    "adaptive norm": (adaptive_norm, _of((16, 256, 384), (16, 384), (16, 384), (16, 384)), True),
    "dice and focal": (dice_and_focal, _of((16, 192, 192), (16, 192, 192)), True),
    "wing loss": (wing, _of((1024, 512), (1024, 512)), True),
    "redundancy": (redundancy, _of((512, 256), (512, 256)), True),
    "hardest triplets": (
        hardest_triplets,
        lambda: [torch.randn(512, 64), torch.randint(0, 32, (512,))],
        True,
    ),
    "lamb": (
        lamb,
        lambda: [*(torch.randn(1024, 1024) for _ in range(3)), torch.rand(1024, 1024)],
        False,
    ),
    "newton schulz": (newton_schulz, _of((256, 512)), False),
    "harmonics": (harmonics, _of((100_000, 3)), True),
    "rays and triangles": (hits, _of((2048, 3), (2048, 3), (64, 3, 3)), False),
    "normals of depths": (normals, _rand((8, 256, 256)), True),
}
"""Name: the function, its tensors, and whether it has gradients."""
