"""Functions of the sixth list, first part: waves, fields, particles, markets, shapes."""

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


def lifted_wavelet(x: Tensor) -> Tensor:
    """Two levels of the LeGall 5/3 transform, around the ends."""
    made = []
    for _ in range(2):
        even, odd = x[..., 0::2], x[..., 1::2]
        odd = odd - 0.5 * (even + even.roll(-1, -1))
        even = even + 0.25 * (odd + odd.roll(1, -1))
        made.append(odd)
        x = even
    return torch.cat([x, made[1], made[0]], -1)


def autocorrelation(x: Tensor) -> Tensor:
    """Correlation of a sound with itself at 24 delays, over its energy."""
    x = x - x.mean(-1, keepdim=True)
    made = torch.stack([(x[..., : x.shape[-1] - n] * x[..., n:]).sum(-1) for n in range(24)], -1)
    return made / made[..., :1].clamp(min=1e-8)


def biquad(x: Tensor) -> Tensor:
    """A recursive filter of second order, over blocks of time that are rows."""
    y1, y2, made = torch.zeros_like(x[0]), torch.zeros_like(x[0]), []
    for n in range(x.shape[0]):
        y = 0.2 * x[n] + 0.3 * (x[n - 1] if n else 0) + 1.2 * y1 - 0.5 * y2
        y1, y2 = y, y1
        made.append(y)
    return torch.stack(made)


def shallow_water(h: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """A step of the shallow water equations on a torus, by central differences."""

    def dx(t: Tensor) -> Tensor:
        return (t.roll(-1, -1) - t.roll(1, -1)) / 2

    def dy(t: Tensor) -> Tensor:
        return (t.roll(-1, -2) - t.roll(1, -2)) / 2

    deep = h + 10
    made = [h - 0.01 * (dx(deep * u) + dy(deep * v)), u - 0.01 * (u * dx(u) + v * dy(u) + 9.81 * dx(h))]
    return torch.stack([*made, v - 0.01 * (u * dx(v) + v * dy(v) + 9.81 * dy(h))], 1)


def jacobi(x: Tensor, source: Tensor) -> Tensor:
    """Four sweeps for Poisson's equation with a border of zeros."""
    for _ in range(4):
        wide = F.pad(x, (1, 1, 1, 1))
        near = wide[:, :-2, 1:-1] + wide[:, 2:, 1:-1] + wide[:, 1:-1, :-2] + wide[:, 1:-1, 2:]
        x = 0.25 * (near - source)
    return x


def lennard_jones(x: Tensor) -> Tensor:
    """Energy of each particle in a box of length 8 that repeats."""
    apart = x[:, None] - x[None]
    apart = apart - 8 * torch.round(apart / 8)
    square = (apart**2).sum(-1) + 64 * torch.eye(x.shape[0], dtype=x.dtype)
    sixth = (1 / square.clamp(min=0.5)) ** 3
    return torch.where(square < 9, 4 * (sixth * sixth - sixth), 0).sum(1)


def springs(x: Tensor) -> Tensor:
    """Two steps of springs between neighbours that lose energy."""
    at, speed = x[0], x[1]
    for _ in range(2):
        force = torch.diff(at, dim=-1, prepend=at[..., :1]) - torch.diff(at, dim=-1, append=at[..., -1:])
        speed = 0.99 * speed - 0.1 * force - 0.01 * at**3
        at = at + 0.1 * speed
    return torch.stack([at, speed])


def asian_option(normal: Tensor) -> Tensor:
    """Payoffs over the mean price of simulated paths."""
    path = torch.exp((0.0002 + 0.01 * normal).cumsum(1)) * 100
    return F.relu(path.mean(1) - 100) * math.exp(-0.02)


def garch(x: Tensor) -> Tensor:
    """Likelihood of returns whose variance follows the last one; days are rows."""
    variance, made = x.var(0), torch.zeros_like(x[0])
    for day in x.unbind(0):
        made = made + torch.log(variance) + day * day / variance
        variance = 0.05 + 0.1 * day * day + 0.85 * variance
    return made


def markowitz(x: Tensor, raw: Tensor) -> Tensor:
    """Mean over deviation of portfolios, with a cost for each weight."""
    weight = torch.softmax(raw, -1)
    gain = x.mean(0)
    centred = x - gain
    cover = centred.T @ centred / (x.shape[0] - 1)
    risk = ((weight @ cover) * weight).sum(-1).clamp(min=1e-8).sqrt()
    return (weight @ gain) / risk - 0.01 * (weight * weight.clamp(min=1e-9).log()).sum(-1)


def distances_to_segments(p: Tensor, ends: Tensor) -> Tensor:
    a, b = ends[:, 0], ends[:, 1]
    along = b - a
    t = (((p[:, None] - a) * along).sum(-1) / (along * along).sum(-1).clamp(min=1e-6)).clamp(0, 1)
    return (p[:, None] - a - t[..., None] * along).norm(dim=-1).amin(1)


def mesh_normals(points: Tensor, faces: Tensor) -> Tensor:
    """Normals of a mesh's corners: sums of those of its faces."""
    a, b, c = points[faces].unbind(1)
    normal = torch.linalg.cross(b - a, c - a)
    made = torch.zeros_like(points)
    for n in range(3):
        made = made.index_add(0, faces[:, n], normal)
    return F.normalize(made, dim=-1)


def polygons(x: Tensor) -> Tensor:
    """Area over squared perimeter of each polygon."""
    after = x.roll(-1, 1)
    area = (x[..., 0] * after[..., 1] - x[..., 1] * after[..., 0]).sum(1).abs() / 2
    return 4 * math.pi * area / (after - x).norm(dim=-1).sum(1).clamp(min=1e-6) ** 2


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "lifted wavelet": (lifted_wavelet, _of((64, 16384)), True),
    "autocorrelation": (autocorrelation, _of((64, 8000)), True),
    "biquad": (biquad, _of((24, 20_000)), True),
    "shallow water": (shallow_water, _of(*[(4, 256, 256)] * 3), True),
    "jacobi sweeps": (jacobi, _of((8, 192, 192), (8, 192, 192)), True),
    "lennard jones": (lennard_jones, lambda: [torch.rand(600, 3) * 8], True),
    "springs of a chain": (springs, _of((2, 256, 2048)), True),
    "asian option": (asian_option, _of((4000, 256)), True),
    "garch": (garch, _of((20, 20_000)), True),
    "markowitz": (markowitz, _of((500, 256), (2000, 256)), True),
    "distances to segments": (distances_to_segments, _of((4000, 2), (100, 2, 2)), True),
    "normals of a mesh": (
        mesh_normals,
        lambda: [torch.randn(20_000, 3), torch.randint(0, 20_000, (40_000, 3))],
        True,
    ),
    "polygons": (polygons, _of((20_000, 12, 2)), True),
}
"""Name: the function, its tensors, and whether it has gradients."""
