"""Functions of the ninth list, third part: orders, few bits, masks, indices, pictures, signals, updates,
graphs, views of memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def median_of_five(x: Tensor) -> Tensor:
    """A median over five neighbours in time: [batch, time]."""
    return x[:, 2:-2] - x.unfold(1, 5, 1).sort(-1).values[..., 2]


def margin_of_two(x: Tensor) -> Tensor:
    """How much more likely the first class is than the second one: [rows, 24 classes]."""
    top = torch.softmax(x, -1).topk(2, -1).values
    return top[:, 0] - top[:, 1]


def ranks(x: Tensor) -> Tensor:
    """Ranks of short rows, from -1 to 1."""
    return x.argsort(-1).argsort(-1) / (x.shape[-1] - 1) * 2 - 1.0


def column_bytes(x: Tensor) -> Tensor:
    """Weights as int8 and back, with a scale for each column."""
    scale = (x.abs().amax(0) / 127).clamp(min=1e-8)
    q = torch.round(x / scale).clamp(-128, 127).to(torch.int8)
    return q.float() * scale


def blended(a: Tensor, b: Tensor, alpha: Tensor) -> Tensor:
    """Two pictures of bytes over each other: [batch, h, w, 3]."""
    share = alpha[..., None].int()
    return ((a * share + b * (255 - share) + 127) // 255).to(torch.uint8)


def mixed_samples(a: Tensor, b: Tensor) -> Tensor:
    """Two sounds of int16 added, the second at three quarters, saturated."""
    return (a.int() + ((3 * b.int()) >> 2)).clamp(-32_768, 32_767).to(torch.int16)


def masks_joined(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """Counts by row of what one of two masks holds, or what is large."""
    return (((a ^ b) & (x > -1)) | (x.abs() > 2)).sum(-1)


def nearest_cells(x: Tensor, at: Tensor) -> Tensor:
    """Values of pictures at places, weighted by how near they are: [batch, c, h, w] and [n, 2]."""
    size = torch.tensor(x.shape[2:], dtype=at.dtype)
    place = at * (size - 1)
    cell = place.round()
    w = torch.exp(-((place - cell) ** 2).sum(-1))
    return x[:, :, cell[:, 0].long(), cell[:, 1].long()] * w


def highest_of_segment(x: Tensor, segment: Tensor) -> Tensor:
    made = x.new_full((500, x.shape[1]), -10.0)
    return made.scatter_reduce(0, segment[:, None].expand_as(x), x, "amax")


def columns_added(x: Tensor, y: Tensor, at: Tensor) -> Tensor:
    return torch.tanh(x.index_add(1, at, y, alpha=0.5))


def hashed_tables(ids: Tensor, table: Tensor) -> Tensor:
    """Products of two entries and a sum with a third, by hashes of ids."""
    one, two, three = (table[(ids * m + 7) % table.shape[0]] for m in (31, 97, 193))
    return one * two + three


def smoothed_classes(x: Tensor, label: Tensor, other: Tensor, share: Tensor) -> Tensor:
    """Cross entropy with two smooth one-hot targets, mixed."""
    hot = [0.9 * F.one_hot(t, x.shape[1]).to(x.dtype) + 0.1 / x.shape[1] for t in (label, other)]
    target = share[:, None] * hot[0] + (1 - share[:, None]) * hot[1]
    return -(target * torch.log_softmax(x, -1)).sum(-1).mean()


def top_down(x: Tensor, low: Tensor) -> Tensor:
    """A coarse map enlarged and added to a fine one, averaged."""
    return F.avg_pool2d(F.relu(x + F.interpolate(low, scale_factor=2, mode="nearest")), 2)


def shrunk_area(x: Tensor) -> Tensor:
    return torch.sqrt(F.interpolate(x.square(), size=(40, 40), mode="area") + 1e-6)


def aligned_corners(x: Tensor, y: Tensor) -> Tensor:
    return F.interpolate(x, size=y.shape[2:], mode="bilinear", align_corners=True) * y


def edges(x: Tensor) -> Tensor:
    """Length of Sobel's gradient, with borders repeated."""
    p = F.pad(x, (1, 1, 1, 1), mode="replicate")
    row = p[..., :-2, :] + 2 * p[..., 1:-1, :] + p[..., 2:, :]
    column = p[..., :-2] + 2 * p[..., 1:-1] + p[..., 2:]
    dx, dy = row[..., 2:] - row[..., :-2], column[..., 2:, :] - column[..., :-2, :]
    return torch.sqrt(dx * dx + dy * dy + 1e-6)


def folded_pixels(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Blocks of 2 x 2 pixels as channels, a 1x1 layer, hardsigmoid."""
    return F.hardsigmoid(F.conv2d(F.pixel_unshuffle(x, 2), w, b))


def mirrored_grid(x: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(x, torch.tanh(grid) * 1.2, padding_mode="border", align_corners=True)


def colours_of_film(y: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Luma and chroma of half the size to red, green, blue: [batch, h, w] of bytes."""
    u, v = (t.repeat_interleave(2, 1).repeat_interleave(2, 2).float() - 128 for t in (u, v))
    y = 1.164 * (y.float() - 16)
    made = torch.stack([y + 1.596 * v, y - 0.392 * u - 0.813 * v, y + 2.017 * u], 1)
    return made.round().clamp(0, 255).to(torch.uint8)


def linear_light(x: Tensor, m: Tensor) -> Tensor:
    """From sRGB to XYZ and to the ratio of two channels: [batch, 3, h, w]."""
    light = torch.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)
    xyz = torch.einsum("ij,bjhw->bihw", m, light)
    return xyz / xyz.sum(1, keepdim=True).clamp(min=1e-4)


def energies(x: Tensor, window: Tensor) -> Tensor:
    """Decibels of windowed frames that overlap: [batch, time]."""
    frames = x.unfold(-1, window.shape[0], window.shape[0] // 4) * window
    return 10 * torch.log10(frames.square().mean(-1) + 1e-10)


def zero_crossings(x: Tensor) -> Tensor:
    """Share of neighbours with different signs, by blocks of 100."""
    blocks = (x[:, 1:] * x[:, :-1] < 0).float().unflatten(-1, (-1, 100))
    return blocks.mean(-1)


def savitzky_golay(x: Tensor) -> Tensor:
    """A smoothed signal less its slope, by seven shifts."""
    n = x.shape[-1] - 6
    parts = [x[..., k : k + n] for k in range(7)]
    smooth = sum(w * p for w, p in zip((-2, 3, 6, 7, 6, 3, -2), parts, strict=True)) / 21
    slope = sum(w * p for w, p in zip((-3, -2, -1, 0, 1, 2, 3), parts, strict=True)) / 28
    assert isinstance(smooth, Tensor) and isinstance(slope, Tensor)
    return smooth - 0.5 * slope


def nesterov_adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: Tensor) -> Tensor:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    mu = 0.9 * (1 - 0.5 * 0.96 ** (step * 0.004))
    ahead = mu * m + (1 - mu) * g
    p = p - 1e-3 * ahead / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
    return torch.stack([p, m, v])


def centred_rms(p: Tensor, g: Tensor, square: Tensor, mean: Tensor, m: Tensor) -> Tensor:
    square, mean = 0.99 * square + 0.01 * g * g, 0.99 * mean + 0.01 * g
    m = 0.9 * m + g / ((square - mean * mean).clamp(min=0).sqrt() + 1e-8)
    return torch.stack([p - 1e-2 * m, square, mean, m])


def layer_rates(p: Tensor, g: Tensor, m: Tensor) -> Tensor:
    """A step with a rate for each layer from norms of weights and gradients: [layers, rows, columns]."""
    weight, slope = p.norm(dim=(1, 2), keepdim=True), g.norm(dim=(1, 2), keepdim=True)
    rate = 1e-3 * weight / (slope + 1e-4 * weight + 1e-8)
    m = 0.9 * m + rate * (g + 1e-4 * p)
    return torch.stack([p - m, m])


def isomorphism(x: Tensor, w: Tensor, b: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """A layer over a node and the sum of its neighbours."""
    return F.relu((1.1 * x).index_add(0, target, x[source]) @ w + b)


def normed_neighbours(x: Tensor, w: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Weighted sums over neighbours, scaled by roots of degrees at both ends."""
    degree = torch.zeros_like(x[:, 0]).index_add(0, target, w) + 1
    scale = degree.rsqrt()
    sent = x[source] * (w * scale[source] * scale[target])[:, None]
    return torch.zeros_like(x).index_add(0, target, sent)


def turned_view(x: Tensor, scale: Tensor) -> Tensor:
    """A chain over a transposed view and every second row."""
    y = x.transpose(1, 2)[:, ::2]
    return torch.log1p(y.square()) * scale - y


def squares_of_192(x: Tensor, y: Tensor, a: Tensor) -> Tensor:
    """A softmax over rows of squares, mixed with its transpose by a number."""
    p = torch.softmax(x * a, -1)
    return p * torch.sigmoid(y) + (1 - torch.tanh(a)) * p.mT


def with_numbers(x: Tensor, low: Tensor, high: Tensor, gamma: Tensor) -> Tensor:
    """Values between two numbers stretched to 0 and 1, under a power."""
    unit = ((x - low) / (high - low)).clamp(1e-4, 1)
    return torch.where(x.isfinite(), unit**gamma, 0.0)


def columns_reversed(x: Tensor) -> Tensor:
    """Columns of a view in the other order, normed over rows: not contiguous."""
    y = x.T.flip(1)
    return (y - y.mean(0)) / (y.var(0, unbiased=False) + 1e-5).sqrt()


def _bytes(*shape: int) -> Tensor:
    return torch.randint(256, shape, dtype=torch.uint8)


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "median of five": (median_of_five, _of((16, 4000)), True),
    "margin of two": (margin_of_two, _of((20_000, 24)), True),
    "ranks": (ranks, _of((8000, 16)), False),
    "bytes by column": (column_bytes, _of((1024, 1024)), False),
    "blended bytes": (
        blended,
        lambda: [_bytes(4, 200, 200, 3), _bytes(4, 200, 200, 3), _bytes(4, 200, 200)],
        False,
    ),
    "mixed samples": (
        mixed_samples,
        lambda: list(torch.randint(-32_768, 32_768, (2, 16, 90_000), dtype=torch.int16)),
        False,
    ),
    "masks joined": (
        masks_joined,
        lambda: [*(torch.rand(2, 1000, 777) < 0.5), torch.randn(1000, 777)],
        False,
    ),
    "nearest cells": (nearest_cells, lambda: [torch.randn(4, 16, 64, 64), torch.rand(4000, 2)], True),
    "highest of a segment": (
        highest_of_segment,
        lambda: [torch.randn(60_000, 96), torch.randint(500, (60_000,))],
        True,
    ),
    "columns added": (
        columns_added,
        lambda: [torch.randn(1000, 300), torch.randn(1000, 500), torch.randint(300, (500,))],
        True,
    ),
    "hashed tables": (
        hashed_tables,
        lambda: [torch.randint(1_000_000, (64, 100)), torch.randn(5000, 48)],
        True,
    ),
    "smoothed classes": (
        smoothed_classes,
        lambda: [torch.randn(4096, 100), *torch.randint(100, (2, 4096)), torch.rand(4096)],
        True,
    ),
    "top down": (top_down, _of((4, 32, 64, 64), (4, 32, 32, 32)), True),
    "shrunk area": (shrunk_area, _of((8, 8, 120, 200)), True),
    "aligned corners": (aligned_corners, _of((8, 16, 30, 40), (8, 16, 75, 90)), True),
    "edges": (edges, _of((8, 3, 160, 160)), True),
    "folded pixels": (folded_pixels, _of((8, 12, 64, 64), (24, 48, 1, 1), (24,)), True),
    "mirrored grid": (mirrored_grid, _of((8, 24, 50, 50), (8, 80, 80, 2)), True),
    "colours of film": (
        colours_of_film,
        lambda: [_bytes(4, 240, 320), _bytes(4, 120, 160), _bytes(4, 120, 160)],
        False,
    ),
    "linear light": (linear_light, lambda: [torch.rand(4, 3, 150, 150), torch.rand(3, 3)], True),
    "energies of frames": (
        energies,
        lambda: [torch.randn(64, 16_000), torch.hann_window(400)],
        True,
    ),
    "zero crossings": (zero_crossings, _of((64, 16_001)), False),
    "smoothed slopes": (savitzky_golay, _of((64, 8000)), True),
    "Adam of Nesterov": (
        nesterov_adam,
        lambda: [*_of(*[(1000, 400)] * 3)(), torch.rand(1000, 400), torch.tensor(12.0)],
        False,
    ),
    "centred RMS": (
        centred_rms,
        lambda: [*_of((700, 500), (700, 500))(), torch.rand(700, 500), *_of(*[(700, 500)] * 2)()],
        False,
    ),
    "rates of layers": (layer_rates, _of(*[(24, 192, 192)] * 3), False),
    "isomorphism": (
        isomorphism,
        lambda: [*_of((5000, 48), (48, 64), (64,))(), *torch.randint(5000, (2, 20_000))],
        True,
    ),
    "normed neighbours": (
        normed_neighbours,
        lambda: [torch.randn(3000, 64), torch.rand(15_000), *torch.randint(3000, (2, 15_000))],
        True,
    ),
    "turned view": (turned_view, _of((32, 250, 240), ()), True),
    "squares of 192": (squares_of_192, _of((16, 192, 192), (16, 192, 192), ()), True),
    "with numbers": (
        with_numbers,
        lambda: [torch.randn(500, 999), *(torch.tensor(v) for v in (-2.0, 2.5, 0.7))],
        True,
    ),
    "columns reversed": (columns_reversed, _of((600, 900)), True),
}
