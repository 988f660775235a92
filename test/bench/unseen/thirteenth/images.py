"""Functions of the thirteenth list about pictures, shapes, rotations and small convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def _last(*shape: int) -> Tensor:
    return torch.randn(shape).contiguous(memory_format=torch.channels_last)


def traced_spheres(origin: Tensor, way: Tensor) -> Tensor:
    """Distances along rays to a torus and a plane by eight steps: [n, 3] twice."""
    way = F.normalize(way, dim=-1)
    t = torch.zeros(len(origin), dtype=origin.dtype)
    for _ in range(8):
        p = origin + t[:, None] * way
        ring = torch.sqrt(p[:, 0].square() + p[:, 2].square() + 1e-8) - 1
        torus = torch.sqrt(ring.square() + p[:, 1].square() + 1e-8) - 0.3
        t = (t + torch.minimum(torus, p[:, 1] + 2)).clamp(-20, 20)
    return t


def circumcircles(p: Tensor) -> Tensor:
    """Whether the fourth point lies in the circle of three, as a determinant: [n, 4, 2]."""
    q = p[:, :3] - p[:, 3:]
    x, y = q.unbind(-1)
    s = x.square() + y.square()
    a = x[:, 0] * (y[:, 1] * s[:, 2] - y[:, 2] * s[:, 1])
    b = y[:, 0] * (x[:, 1] * s[:, 2] - x[:, 2] * s[:, 1])
    return a - b + s[:, 0] * (x[:, 1] * y[:, 2] - x[:, 2] * y[:, 1])


def quaternions_of_matrices(m: Tensor) -> Tensor:
    """Quaternions of rotations, by the largest of four parts: [n, 3, 3]."""
    a, b, c = m[:, 0, 0], m[:, 1, 1], m[:, 2, 2]
    size = torch.stack([1 + a + b + c, 1 + a - b - c, 1 - a + b - c, 1 - a - b + c], -1)
    x, y, z = m[:, 2, 1] - m[:, 1, 2], m[:, 0, 2] - m[:, 2, 0], m[:, 1, 0] - m[:, 0, 1]
    p, q, r = m[:, 1, 0] + m[:, 0, 1], m[:, 0, 2] + m[:, 2, 0], m[:, 2, 1] + m[:, 1, 2]
    rows = torch.stack(
        [size[:, 0], x, y, z, x, size[:, 1], p, q, y, p, size[:, 2], r, z, q, r, size[:, 3]], -1
    )
    best = size.argmax(-1)
    chosen = rows.view(-1, 4, 4).gather(1, best[:, None, None].expand(-1, 1, 4)).squeeze(1)
    return F.normalize(chosen, dim=-1)


def between_rotations(a: Tensor, b: Tensor, t: Tensor) -> Tensor:
    """Spherical interpolation of quaternions, straight where they are close: [n, 4] twice, [n, steps]."""
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    dot = (a * b).sum(-1, keepdim=True)
    b = torch.where(dot < 0, -b, b)
    angle = torch.acos(dot.abs().clamp(max=0.9999))
    s = torch.sin(angle)
    left, right = torch.sin((1 - t) * angle) / s, torch.sin(t * angle) / s
    return left[..., None] * a[:, None] + right[..., None] * b[:, None]


def blended_skin(p: Tensor, weight: Tensor, bone: Tensor) -> Tensor:
    """Vertices moved by a mixture of bones: [v, 3], [v, bones], [n, bones, 3, 4]."""
    share = torch.softmax(weight, -1)
    move = (share @ bone.flatten(2)).unflatten(-1, (3, 4))
    return (move[..., :3] * p[:, None]).sum(-1) + move[..., 3]


def inside_frustum(low: Tensor, high: Tensor, plane: Tensor) -> Tensor:
    """Which boxes are not outside of any of six planes: [n, 3] twice, [6, 4]."""
    far = torch.where(plane[:, None, :3] > 0, high, low)
    return ((far * plane[:, None, :3]).sum(-1) + plane[:, 3:] > 0).all(0)


def gradient_similarity(x: Tensor, y: Tensor) -> Tensor:
    """Deviation of the similarity of gradients after a pool: [n, 1, h, w] twice."""
    kernel = torch.tensor([[1.0, 0.0, -1.0]] * 3, dtype=x.dtype) / 3
    w = torch.stack([kernel, kernel.T])[:, None]
    size = [(F.conv2d(F.avg_pool2d(t, 2), w, padding=1).square().sum(1) + 1e-8).sqrt() for t in (x, y)]
    same = (2 * size[0] * size[1] + 0.0026) / (size[0].square() + size[1].square() + 0.0026)
    return same.flatten(1).std(1)


def guided(x: Tensor, guide: Tensor) -> Tensor:
    """A guided filter with boxes of 5 x 5: [n, c, h, w], [n, 1, h, w]."""

    def mean(t: Tensor) -> Tensor:
        return F.avg_pool2d(t, 5, 1, 2, count_include_pad=False)

    m, p = mean(guide), mean(x)
    a = (mean(guide * x) - m * p) / (mean(guide * guide) - m * m + 0.01)
    return mean(a) * guide + mean(p - a * m)


def painted(x: Tensor) -> Tensor:
    """The mean of the quietest of four neighbourhoods (Kuwahara): [n, h, w]."""
    p = F.pad(x[:, None], (2, 2, 2, 2), mode="reflect")
    mean = F.avg_pool2d(p, 3, 1)
    spread = F.avg_pool2d(p * p, 3, 1) - mean * mean
    h, w = x.shape[1:]
    at = [(i, j) for i in (0, 2) for j in (0, 2)]
    means = torch.cat([mean[..., i : i + h, j : j + w] for i, j in at], 1)
    spreads = torch.cat([spread[..., i : i + h, j : j + w] for i, j in at], 1)
    return means.gather(1, spreads.argmin(1, keepdim=True)).squeeze(1)


def cheapest_seams(energy: Tensor) -> Tensor:
    """Costs of the cheapest path down to each pixel of 24 rows: [24, n, w]."""
    total = energy[0]
    for row in energy[1:]:
        wide = F.pad(total, (1, 1), value=1e9)
        total = row + torch.minimum(torch.minimum(wide[..., :-2], wide[..., 2:]), total)
    return total


def merged_exposures(x: Tensor, seconds: Tensor) -> Tensor:
    """Radiance of three exposures in bytes, weighted by a tent: [3, n, h, w], [3]."""
    v = x.float()
    weight = 1 - (v / 127.5 - 1).abs() + 1e-3
    light = (v + 1).log() - seconds.log()[:, None, None, None]
    return ((weight * light).sum(0) / weight.sum(0)).exp()


def inverted_residual(x: Tensor, w: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """A depthwise 3x3 of stride 2, folded norm, hardswish, channels last: [n, c, h, w], [c, 1, 3, 3]."""
    y = F.conv2d(x, w, stride=2, padding=1, groups=x.shape[1])
    return F.hardswish(y * scale[:, None, None] + shift[:, None, None])


def large_kernels(x: Tensor, a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """A depthwise 5x5, a dilated 7x7 and a 1x1 gate the input: [n, c, h, w]."""
    c = x.shape[1]
    y = F.conv2d(x, a, padding=2, groups=c)
    y = F.conv2d(y, b, padding=9, dilation=3, groups=c)
    return x * F.conv2d(y, w)


def involution(x: Tensor, kernel: Tensor) -> Tensor:
    """Each pixel's own 3x3 kernel by group, over its neighbours: [n, c, h, w], [n, g, 9, h, w]."""
    n, c, h, w = x.shape
    g = kernel.shape[1]
    near = F.unfold(x, 3, padding=1).view(n, g, c // g, 9, h, w)
    return (near * kernel[:, :, None]).sum(3).view(n, c, h, w)


def offset_samples(x: Tensor, offset: Tensor, mask: Tensor) -> Tensor:
    """Maps sampled at learned offsets, under a mask: [n, c, h, w], [n, 2, h, w], [n, 1, h, w]."""
    h, w = x.shape[2:]
    y, at = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
    grid = torch.stack([at, y], -1).to(x.dtype) + 0.1 * torch.tanh(offset).permute(0, 2, 3, 1)
    return F.grid_sample(x, grid, align_corners=True, padding_mode="border") * torch.sigmoid(mask)


def blurred_pool(x: Tensor) -> Tensor:
    """A dense max pool, then a blur with stride 2, channels last: [n, c, h, w]."""
    c = x.shape[1]
    w = torch.tensor([1.0, 3.0, 3.0, 1.0], dtype=x.dtype) / 8
    x = F.pad(F.max_pool2d(x, 2, 1), (1, 2, 1, 2), mode="reflect")
    return F.conv2d(x, (w[:, None] * w).expand(c, 1, 4, 4), stride=2, groups=c)


def median_of_nine(x: Tensor) -> Tensor:
    """Medians of 3 x 3 pixels by sorting columns first: [n, h, w]."""
    p = F.pad(x[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]

    def three(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        low, high = torch.minimum(a, b), torch.maximum(a, b)
        return torch.minimum(low, c), torch.maximum(low, torch.minimum(high, c)), torch.maximum(high, c)

    low, middle, high = three(p[:, :-2], p[:, 1:-1], p[:, 2:])
    cut = (slice(None, -2), slice(1, -1), slice(2, None))
    most = three(*(low[..., s] for s in cut))[2]
    mid = three(*(middle[..., s] for s in cut))[1]
    least = three(*(high[..., s] for s in cut))[0]
    return three(most, mid, least)[1]


def oriented_histograms(x: Tensor) -> Tensor:
    """Normalised histograms of nine directions in cells of 8 x 8: [n, h, w]."""
    dx = x[:, 1:-1, 2:] - x[:, 1:-1, :-2]
    dy = x[:, 2:, 1:-1] - x[:, :-2, 1:-1]
    size = torch.sqrt(dx * dx + dy * dy)
    at = ((torch.atan2(dy, dx) / math.pi % 1) * 9).long().clamp(max=8)
    bins = (at[:, None] == torch.arange(9)[:, None, None]) * size[:, None]
    cells = F.avg_pool2d(bins, 8)
    return cells / (cells.square().sum(1, keepdim=True) + 1e-4).sqrt()


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "traced spheres": (
        traced_spheres,
        lambda: [torch.randn(20_000, 3) + torch.tensor([0.0, 2.0, 0.0]), torch.randn(20_000, 3)],
        True,
    ),
    "circumcircles": (circumcircles, _of((60_000, 4, 2)), True),
    "quaternions of matrices": (quaternions_of_matrices, _of((30_000, 3, 3)), True),
    "between rotations": (
        between_rotations,
        lambda: [*torch.randn(2, 4000, 4), torch.rand(4000, 16)],
        True,
    ),
    "blended skin": (blended_skin, _of((7000, 3), (7000, 24), (4, 24, 3, 4)), True),
    "inside of a frustum": (
        inside_frustum,
        lambda: [torch.randn(100_000, 3), torch.randn(100_000, 3) + 1, torch.randn(6, 4)],
        False,
    ),
    "similar gradients": (gradient_similarity, _of((8, 1, 256, 256), (8, 1, 256, 256)), True),
    "guided filter": (guided, _of((4, 3, 120, 120), (4, 1, 120, 120)), True),
    "painted": (painted, _of((4, 150, 170)), False),
    "cheapest seams": (cheapest_seams, lambda: [torch.rand(24, 16, 1000)], True),
    "merged exposures": (
        merged_exposures,
        lambda: [torch.randint(256, (3, 8, 200, 200), dtype=torch.uint8), torch.tensor([0.1, 0.4, 1.6])],
        False,
    ),
    "inverted residual": (
        inverted_residual,
        lambda: [_last(8, 96, 56, 56), *_of((96, 1, 3, 3), (96,), (96,))()],
        True,
    ),
    "large kernels": (
        large_kernels,
        _of((4, 32, 40, 40), (32, 1, 5, 5), (32, 1, 7, 7), (32, 32, 1, 1)),
        True,
    ),
    "involution": (involution, _of((4, 32, 48, 48), (4, 4, 9, 48, 48)), True),
    "offset samples": (offset_samples, _of((4, 32, 50, 50), (4, 2, 50, 50), (4, 1, 50, 50)), True),
    "blurred pool": (blurred_pool, lambda: [_last(4, 64, 64, 64)], True),
    "median of nine": (median_of_nine, _of((8, 250, 250)), True),
    "oriented histograms": (oriented_histograms, _of((8, 202, 202)), False),
}
