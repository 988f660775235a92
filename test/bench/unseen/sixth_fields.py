"""Functions of the sixth list, second part: genes, robots, weather, graphics, codecs."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def motifs(bases: Tensor, weights: Tensor) -> Tensor:
    """The best score of each motif of 12 bases on each strand of DNA."""
    hot = F.one_hot(bases, 4).to(weights.dtype)
    found = hot.unfold(1, 12, 1).flatten(2) @ weights.flatten(1).T
    back = (3 - bases).flip(1)
    other = F.one_hot(back, 4).to(weights.dtype).unfold(1, 12, 1).flatten(2) @ weights.flatten(1).T
    return torch.maximum(found.amax(1), other.amax(1))


def alignment(scores: Tensor) -> Tensor:
    """Smith and Waterman's scores, softened, diagonal by diagonal: [batch, diagonals, length]."""
    before = earlier = torch.zeros_like(scores[:, 0])
    best = torch.zeros_like(scores[:, 0, 0])
    for n in range(scores.shape[1]):
        above = F.pad(before, (1, 0))[:, :-1]
        corner = F.pad(earlier, (1, 0))[:, :-1] + scores[:, n]
        now = F.softplus(torch.maximum(corner, torch.maximum(before, above) - 0.5))
        earlier, before = before, now
        best = torch.maximum(best, now.amax(-1))
    return best


def local_distances(x: Tensor, y: Tensor) -> Tensor:
    """The share of a protein's distances that are kept (lDDT, with smooth steps)."""
    far = (x[:, :, None] - x[:, None]).pow(2).sum(-1).add(1e-6).sqrt()
    true = (y[:, :, None] - y[:, None]).pow(2).sum(-1).add(1e-6).sqrt()
    near = (true < 2.5) & ~torch.eye(x.shape[1], dtype=torch.bool)
    off = (far - true).abs()
    kept = sum(torch.sigmoid(4 * (step - off)) for step in (0.5, 1.0, 2.0, 4.0)) / 4
    return (kept * near).sum(-1) / near.sum(-1).clamp(min=1)


def kalman(x: Tensor, p: Tensor, z: Tensor) -> Tensor:
    """A filter's step for many tracks: four states, two measured."""
    f = torch.eye(4, dtype=x.dtype) + 0.1 * torch.eye(4, dtype=x.dtype).roll(2, 1).triu()
    x = x @ f.T
    p = f @ (p @ p.mT) @ f.T + 0.01 * torch.eye(4, dtype=x.dtype)
    a, b, d = p[:, 0, 0] + 0.1, p[:, 0, 1], p[:, 1, 1] + 0.1
    over = 1 / (a * d - b * b)
    inverse = torch.stack([d * over, -b * over, -b * over, a * over], -1).unflatten(-1, (2, 2))
    gain = p[:, :, :2] @ inverse
    return x + (gain @ (z - x[:, :2])[..., None])[..., 0]


def to_matrices(q: Tensor, x: Tensor) -> Tensor:
    """Points that quaternions turn, by matrices."""
    w, i, j, k = F.normalize(q, dim=-1).unbind(-1)
    rows = [
        torch.stack([1 - 2 * (j * j + k * k), 2 * (i * j - k * w), 2 * (i * k + j * w)], -1),
        torch.stack([2 * (i * j + k * w), 1 - 2 * (i * i + k * k), 2 * (j * k - i * w)], -1),
        torch.stack([2 * (i * k - j * w), 2 * (j * k + i * w), 1 - 2 * (i * i + j * j)], -1),
    ]
    return (torch.stack(rows, -2) @ x[..., None])[..., 0]


def heat_and_humidity(t: Tensor, dew: Tensor, wind: Tensor) -> Tensor:
    t, dew = 20 + 10 * t, 10 + 8 * dew
    humid = torch.exp(17.625 * dew / (243.04 + dew) - 17.625 * t / (243.04 + t)) * 100
    chill = 13.12 + 0.6215 * t + (0.3965 * t - 11.37) * (wind.abs() * 30 + 4).pow(0.16)
    heat = t + 0.33 * humid / 100 * 6.105 * torch.exp(17.27 * t / (237.7 + t)) - 4
    return torch.where(t < 10, chill, torch.where(t > 27, heat, t))


def area_weighted(x: Tensor) -> Tensor:
    """Error of a forecast by latitude, whose weights are cosines, after the climate's mean."""
    weight = torch.cos(torch.linspace(-1.5, 1.5, x.shape[-2], dtype=x.dtype))[:, None]
    off = x - x.mean(0, keepdim=True)
    return (off * off * weight).mean((-2, -1)).sqrt() / weight.mean()


def tone_mapped(x: Tensor) -> Tensor:
    """The ACES curve, and sRGB's gamma."""
    x = x.abs() * 4
    x = (x * (2.51 * x + 0.03) / (x * (2.43 * x + 0.59) + 0.14)).clamp(0, 1)
    return torch.where(x <= 0.0031308, 12.92 * x, 1.055 * x.clamp(min=1e-6).pow(1 / 2.4) - 0.055)


def phong(normal: Tensor, albedo: Tensor, light: Tensor) -> Tensor:
    normal = F.normalize(normal, dim=1)
    light = F.normalize(light, dim=1)[:, :, None, None]
    facing = (normal * light).sum(1, keepdim=True)
    shine = (2 * facing * normal - light)[:, 2:].clamp(min=0) ** 16
    return albedo * (0.1 + facing.clamp(min=0)) + 0.5 * shine


def gradient_noise(at: Tensor, slopes: Tensor) -> Tensor:
    """Perlin's noise of points, from a table of slopes."""
    low = at.floor()
    rest = at - low
    x, y = (low.long() % 64).unbind(-1)
    fade = rest**3 * (rest * (rest * 6 - 15) + 10)
    made = []
    for j in (0, 1):
        for i in (0, 1):
            slope = slopes[(x + i) % 64, (y + j) % 64]
            made.append((slope * (rest - rest.new_tensor([i, j]))).sum(-1))
    top = made[0] + fade[..., 0] * (made[1] - made[0])
    return top + fade[..., 1] * (made[2] + fade[..., 0] * (made[3] - made[2]) - top)


def splats(at: Tensor, centre: Tensor, raw: Tensor, colour: Tensor) -> Tensor:
    """Gaussians in front of one another, blended at each pixel."""
    apart = at[:, None] - centre[None]
    a, b, c = raw.unbind(-1)
    far = a.exp() * apart[..., 0] ** 2 + c.exp() * apart[..., 1] ** 2 + 0.2 * b * apart.prod(-1)
    alpha = 0.99 * torch.exp(-far.clamp(min=0))
    left = F.pad((1 - alpha).cumprod(1)[:, :-1], (1, 0), value=1.0)
    return (alpha * left) @ torch.sigmoid(colour)


def zigzag(x: Tensor) -> Tensor:
    """Differences of samples, signs in the lowest bit, and how many bytes each takes."""
    step = torch.diff(x, dim=-1, prepend=torch.zeros_like(x[..., :1]))
    code = (step << 1) ^ (step >> 31)
    return code + ((code > 127).int() + (code > 16383).int() + (code > 2097151).int() << 24)


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "motifs": (motifs, lambda: [torch.randint(0, 4, (32, 500)), torch.randn(32, 4, 12)], False),
    "alignment": (alignment, _of((64, 24, 512)), True),
    "local distances": (local_distances, _of((4, 256, 3), (4, 256, 3)), True),
    "kalman step": (kalman, _of((20_000, 4), (20_000, 4, 4), (20_000, 2)), True),
    "turned by quaternions": (to_matrices, _of((100_000, 4), (100_000, 3)), True),
    "heat and humidity": (heat_and_humidity, _of(*[(1000, 500)] * 3), True),
    "error by latitude": (area_weighted, _of((24, 181, 360)), True),
    "tone mapped": (tone_mapped, _of((4, 3, 384, 384)), True),
    "phong": (phong, _of((4, 3, 256, 256), (4, 3, 256, 256), (4, 3)), True),
    "gradient noise": (gradient_noise, lambda: [torch.rand(200_000, 2) * 60, torch.randn(64, 64, 2)], False),
    "splats": (splats, _of((2048, 2), (128, 2), (128, 3), (128, 3)), True),
    "zigzag": (zigzag, lambda: [torch.randint(-9999, 9999, (512, 4096), dtype=torch.int32)], False),
}
"""Name: the function, its tensors, and whether it has gradients."""
