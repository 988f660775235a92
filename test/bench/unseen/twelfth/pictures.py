"""Functions of the twelfth list about pictures, boxes and convolutional nets."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def _last(*shape: int) -> Tensor:
    return torch.randn(shape).contiguous(memory_format=torch.channels_last)


def cropped(x: Tensor, theta: Tensor) -> Tensor:
    """Affine crops of pictures, bilinear: [n, 3, h, w], [n, 2, 3]."""
    grid = F.affine_grid(theta, [*x.shape[:2], 112, 112], align_corners=False)
    return F.grid_sample(x, grid, padding_mode="zeros", align_corners=False)


def more_contrast(x: Tensor) -> Tensor:
    """Pictures of bytes stretched to the whole range: [n, 3, h, w]."""
    low, high = x.amin((-2, -1), keepdim=True).float(), x.amax((-2, -1), keepdim=True).float()
    scale = torch.where(high > low, 255 / (high - low).clamp(min=1), 1.0)
    return ((x.float() - low) * scale).clamp(0, 255).to(torch.uint8)


def equalised(x: Tensor) -> Tensor:
    """Pictures of bytes with equalised histograms: [planes, pixels]."""
    at = x.long()
    count = torch.zeros(len(x), 256).scatter_add_(1, at, torch.ones(x.shape))
    table = (count.cumsum(1) * (255 / x.shape[1])).round().clamp(0, 255)
    return table.gather(1, at).to(torch.uint8)


def gaussian_blur(x: Tensor, w: Tensor) -> Tensor:
    """Blur along rows, then along columns: [n, c, h, w] with channels last, [7]."""
    c = x.shape[1]
    rows = F.conv2d(F.pad(x, (3, 3, 0, 0), mode="reflect"), w.expand(c, 1, 1, 7), groups=c)
    return F.conv2d(F.pad(rows, (0, 0, 3, 3), mode="reflect"), w[:, None].expand(c, 1, 7, 1), groups=c)


def smooth_halves(x: Tensor) -> Tensor:
    """Binomial blur with stride 2 at reflected edges: [n, c, h, w], channels last."""
    x = F.pad(x, (1, 1, 1, 1), mode="reflect")
    w = torch.tensor([0.25, 0.5, 0.25], dtype=x.dtype)
    kernel = (w[:, None] * w).expand(x.shape[1], 1, 3, 3)
    return F.conv2d(x, kernel, stride=2, groups=x.shape[1])


def model_input(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Bytes of rows of pixels as normalised bf16 planes, channels last: [n, h, w, 3], [3] twice."""
    return ((x.float() - mean) / std).to(torch.bfloat16).permute(0, 3, 1, 2)


def odd_resize(x: Tensor) -> Tensor:
    """Pictures of another size, bilinear, in -1 to 1: [n, 3, h, w]."""
    return F.interpolate(x, size=(75, 113), mode="bilinear", align_corners=False) * 2 - 1


def finer_features(x: Tensor, y: Tensor) -> Tensor:
    """Coarse maps in the size of finer ones, joined, channels last: [n, c, h, w], [n, c, 2 h, 2 w]."""
    return F.relu(torch.cat([F.interpolate(x, y.shape[2:], mode="bilinear", align_corners=False), y], 1))


def distributed_boxes(x: Tensor, anchor: Tensor, stride: Tensor) -> Tensor:
    """Boxes from distributions over 16 distances of their sides: [n, 64, a], [a, 2], [a]."""
    n, _, a = x.shape
    p = torch.softmax(x.view(n, 4, 16, a), 2)
    side = (p * torch.arange(16, dtype=x.dtype)[:, None]).sum(2).transpose(1, 2)
    low, high = anchor - side[..., :2], anchor + side[..., 2:]
    return torch.cat([(low + high) / 2, high - low], -1) * stride[:, None]


def space_to_depth(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Every second pixel as a channel, then scale and SiLU: [n, c, h, w], channels last, [4 c] twice."""
    parts = [x[..., i::2, j::2] for j in range(2) for i in range(2)]
    return F.silu(torch.cat(parts, 1) * w[:, None, None] + b[:, None, None])


def response_norm(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """Global response norm of GELU: [n, h, w, c], [c] twice."""
    x = F.gelu(x)
    size = x.square().sum((1, 2), keepdim=True).sqrt()
    return gamma * (x * size / (size.mean(-1, keepdim=True) + 1e-6)) + beta + x


def squeezed(x: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """Squeeze and excite, then a residual: [n, c, h, w] with channels last, [r, c], [c, r]."""
    gate = F.hardsigmoid(F.relu(x.mean((2, 3)) @ down.T) @ up.T)
    return F.relu(x * gate[..., None, None] + x)


def small_groups(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Group norm of groups of four channels, then SiLU: [n, c, h, w] with channels last."""
    return F.silu(F.group_norm(x, x.shape[1] // 4, w, b, 1e-6))


def latents(x: Tensor, noise: Tensor) -> Tensor:
    """Samples of a diagonal gaussian, less its divergence by picture: [n, 2 c, h, w], [n, c, h, w]."""
    mean, log = x.chunk(2, 1)
    log = log.clamp(-30, 20)
    divergence = 0.5 * (mean.square() + log.exp() - 1 - log).sum((1, 2, 3), keepdim=True)
    return mean + torch.exp(0.5 * log) * noise - 1e-4 * divergence


def census(x: Tensor) -> Tensor:
    """Bits of the neighbours that are darker, of 5 by 5: [n, h, w]."""
    wide = F.pad(x, (2, 2, 2, 2))
    h, w = x.shape[1:]
    bits = torch.zeros_like(x, dtype=torch.int32)
    for i in range(5):
        for j in range(5):
            if (i, j) != (2, 2):
                bits = bits * 2 + (wide[:, i : i + h, j : j + w] < x).to(torch.int32)
    return bits


def thin_edges(x: Tensor) -> Tensor:
    """Gradients that are the largest across their edge: [n, 1, h, w]."""
    p = F.pad(x, (1, 1, 1, 1), mode="replicate")
    dx = p[..., 1:-1, 2:] - p[..., 1:-1, :-2]
    dy = p[..., 2:, 1:-1] - p[..., :-2, 1:-1]
    size = torch.sqrt(dx * dx + dy * dy + 1e-12)
    q = F.pad(size, (1, 1, 1, 1))
    flat = dx.abs() > dy.abs()
    before = torch.where(flat, q[..., 1:-1, :-2], q[..., :-2, 1:-1])
    after = torch.where(flat, q[..., 1:-1, 2:], q[..., 2:, 1:-1])
    return size * ((size >= before) & (size >= after))


def bilinear_rows(feature: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Features at points of boxes, from four neighbours by hand: [c, h, w], [points] twice."""
    h, w = feature.shape[1:]
    y, x = y.clamp(0, h - 1), x.clamp(0, w - 1)
    y0, x0 = y.floor().long(), x.floor().long()
    y1, x1 = (y0 + 1).clamp(max=h - 1), (x0 + 1).clamp(max=w - 1)
    ly, lx = y - y0, x - x0
    top = feature[:, y0, x0] * (1 - lx) + feature[:, y0, x1] * lx
    low = feature[:, y1, x0] * (1 - lx) + feature[:, y1, x1] * lx
    return top * (1 - ly) + low * ly


def standard_weights(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A convolution with standardised weights: [n, c, h, w], [o, c, 3, 3], [o]."""
    var, mean = torch.var_mean(w, (1, 2, 3), keepdim=True, unbiased=False)
    return F.relu(F.conv2d(x, (w - mean) * torch.rsqrt(var + 1e-5), b, padding=1))


def conv_extrema(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Hardswish of a convolution, logarithm of sums of exponentials over channels: [n, c, h, w]."""
    x = F.conv2d(x, w, b)
    return torch.logsumexp(x + F.hardswish(torch.tanh(x)), 1, keepdim=True)


def matched_shifts(x: Tensor, y: Tensor) -> Tensor:
    """Correlations of features with those up to 2 pixels away: [n, c, h, w] twice."""
    wide = F.pad(y, (2, 2, 2, 2))
    h, w = x.shape[2:]
    parts = [(x * wide[..., i : i + h, j : j + w]).mean(1) for i in range(5) for j in range(5)]
    return F.leaky_relu(torch.stack(parts, 1), 0.1)


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "cropped": (
        cropped,
        lambda: [
            torch.rand(8, 3, 160, 160),
            torch.tensor([[0.7, 0.1, 0.0], [-0.1, 0.7, 0.1]]).repeat(8, 1, 1),
        ],
        True,
    ),
    "more contrast": (
        more_contrast,
        lambda: [torch.randint(20, 200, (8, 3, 180, 180), dtype=torch.uint8)],
        False,
    ),
    "equalised planes": (equalised, lambda: [torch.randint(20, 200, (24, 20_000), dtype=torch.uint8)], False),
    "gaussian blur": (gaussian_blur, lambda: [_last(4, 16, 60, 60), torch.softmax(torch.randn(7), 0)], True),
    "smooth halves": (smooth_halves, lambda: [_last(8, 32, 56, 56)], True),
    "model input": (
        model_input,
        lambda: [torch.randint(256, (8, 224, 224, 3), dtype=torch.uint8), *(torch.rand(2, 3) * 100 + 50)],
        False,
    ),
    "odd resize": (odd_resize, lambda: [torch.rand(8, 3, 99, 147)], True),
    "finer features": (finer_features, lambda: [_last(4, 48, 25, 25), _last(4, 32, 50, 50)], True),
    "distributed boxes": (
        distributed_boxes,
        lambda: [torch.randn(4, 64, 2100), torch.rand(2100, 2) * 80, torch.full((2100,), 8.0)],
        True,
    ),
    "space to depth": (space_to_depth, lambda: [_last(8, 24, 80, 80), *torch.randn(2, 96)], True),
    "response norm": (response_norm, _of((8, 28, 28, 120), (120,), (120,)), True),
    "squeezed": (squeezed, lambda: [_last(8, 120, 28, 28), *_of((30, 120), (120, 30))()], True),
    "small groups": (small_groups, lambda: [_last(4, 128, 32, 32), *torch.randn(2, 128)], True),
    "latents": (latents, _of((8, 16, 64, 64), (8, 8, 64, 64)), True),
    "census": (census, lambda: [torch.rand(4, 150, 150)], False),
    "edges across": (thin_edges, lambda: [torch.rand(4, 1, 200, 200)], True),
    "bilinear rows": (
        bilinear_rows,
        lambda: [torch.randn(64, 50, 50), torch.rand(5000) * 50, torch.rand(5000) * 50],
        True,
    ),
    "standard weights": (standard_weights, _of((4, 32, 28, 28), (64, 32, 3, 3), (64,)), True),
    "conv and extrema": (conv_extrema, _of((8, 8, 60, 60), (32, 8, 3, 3), (32,)), True),
    "matched shifts": (matched_shifts, _of((2, 32, 48, 64), (2, 32, 48, 64)), True),
}
