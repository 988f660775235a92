"""Functions of the eleventh list whose inputs have channels last, or are transposed."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _last(*shape: int) -> Tensor:
    """Return random planes, or volumes, with channels last in memory."""
    form = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    return torch.randn(shape).contiguous(memory_format=form)


def expanded(x: Tensor, y: Tensor) -> Tensor:
    """An inverted block's activation with its residual: two of [n, c, h, w]."""
    return x * torch.sigmoid(x) + 0.5 * y


def normed_points(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Layer norm over the channels at each point: [n, c, h, w]."""
    mean = x.mean(1, keepdim=True)
    off = x - mean
    return w[:, None, None] * off * torch.rsqrt(off.square().mean(1, keepdim=True) + 1e-6) + b[:, None, None]


def statistics_of_batch(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Batch norm with statistics of the batch, then a leaky ReLU: [n, c, h, w]."""
    return F.leaky_relu(F.batch_norm(x, None, None, w, b, True), 0.1)


def head_of_a_net(x: Tensor, w: Tensor) -> Tensor:
    """Means over planes after hardswish, as classes: [n, c, h, w], [classes, c]."""
    return F.hardswish(x).mean((2, 3)) @ w.T


def stem(x: Tensor) -> Tensor:
    """ReLU and a pool of three by three with stride 2: [n, c, h, w]."""
    return F.max_pool2d(F.relu(x), 3, 2, 1)


def groups_at_once(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Group norm of 8 groups, then a GELU: [n, c, h, w]."""
    return F.gelu(F.group_norm(x, 8, w, b))


def spatial_gate(x: Tensor, w: Tensor) -> Tensor:
    """Planes times a gate of their mean and maximum over channels: [n, c, h, w], [2]."""
    gate = w[0] * x.mean(1, keepdim=True) + w[1] * x.amax(1, keepdim=True)
    return x * torch.sigmoid(gate)


def gates_of_axes(x: Tensor) -> Tensor:
    """Planes times gates of their means over rows and over columns: [n, c, h, w]."""
    return x * torch.sigmoid(x.mean(3, keepdim=True)) * torch.sigmoid(x.mean(2, keepdim=True))


def layer_scale(x: Tensor, y: Tensor, gamma: Tensor) -> Tensor:
    """A branch scaled for each channel, added to its residual: [n, c, h, w]."""
    return x + gamma[:, None, None] * F.gelu(y)


def lateral(x: Tensor, y: Tensor) -> Tensor:
    """Planes of half the size, repeated, added to finer ones: [n, c, h / 2, w / 2] and [n, c, h, w]."""
    return F.interpolate(x, scale_factor=2.0, mode="nearest") + torch.tanh(y)


def pixel_loss(x: Tensor, label: Tensor) -> Tensor:
    """Cross entropy of each pixel's classes: [n, classes, h, w]."""
    return F.cross_entropy(x, label, reduction="none").mean((1, 2))


def trained_slopes(x: Tensor, slope: Tensor, y: Tensor) -> Tensor:
    """Slopes of each channel for negative values, times another tensor: [n, c, h, w]."""
    return F.prelu(x, slope) * y


def halved(x: Tensor, w: Tensor) -> Tensor:
    """Means of two by two points, scaled by channel: [n, c, h, w]."""
    return F.avg_pool2d(x, 2) * w[:, None, None]


def styled(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Instance norm with scales and shifts of a style: [n, c, h, w], twice [n, c]."""
    return F.instance_norm(x) * (1 + scale[..., None, None]) + shift[..., None, None]


def shifted_in_time(x: Tensor) -> Tensor:
    """A quarter of the channels from the frame before, a quarter from the next: [time, c, h, w]."""
    c = x.shape[1] // 4
    before = F.pad(x[:-1, :c], (0, 0, 0, 0, 0, 0, 1, 0))
    after = F.pad(x[1:, c : 2 * c], (0, 0, 0, 0, 0, 0, 0, 1))
    return torch.cat([before, after, x[:, 2 * c :]], 1)


def luma_and_chroma(x: Tensor) -> Tensor:
    """Luma and two chroma planes of red, green and blue: [n, 3, h, w]."""
    r, g, b = x.unbind(1)
    luma = 0.299 * r + 0.587 * g + 0.114 * b
    return torch.stack([luma, 0.564 * (b - luma), 0.713 * (r - luma)], 1)


def activated_volume(x: Tensor, w: Tensor) -> Tensor:
    """Mish of volumes, scaled by channel: [n, c, d, h, w]."""
    return F.mish(x) * w[:, None, None, None]


def pictures_in(picture: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Normalised planes of pictures of bytes: [n, h, w, 3]."""
    return (picture.permute(0, 3, 1, 2).float() / 255 - mean[:, None, None]) / std[:, None, None]


def pictures_out(x: Tensor) -> Tensor:
    """Pictures of bytes of planes from -1 to 1: [n, 3, h, w]."""
    return ((x * 0.5 + 0.5).clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def keys_softmax(x: Tensor, heat: Tensor) -> Tensor:
    """Softmax over the rows of a matrix that is handed over transposed: [n, m] of [m, n]."""
    return torch.softmax(x.T * heat, -1)


def transposed_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Layer norm of tokens handed over with channels first: [n, k, time]."""
    return F.layer_norm(x.transpose(1, 2), w.shape, w, b)


def heads_joined(x: Tensor, gate: Tensor) -> Tensor:
    """Heads joined and gated: [n, heads, time, k] and [n, time, heads k]."""
    return x.transpose(1, 2).flatten(2) * torch.sigmoid(gate)


def columns_standard(x: Tensor) -> Tensor:
    """Standardised columns, negative ones halved, of a transposed matrix: [n, m]."""
    y = (x - x.mean(0)) / (x.std(0) + 1e-5)
    return torch.where(y < 0, 0.5 * y, y)


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "expanded": (expanded, lambda: [_last(8, 96, 40, 40), _last(8, 96, 40, 40)], True),
    "normed points": (normed_points, lambda: [_last(8, 96, 40, 40), *torch.randn(2, 96)], True),
    "statistics of a batch": (statistics_of_batch, lambda: [_last(8, 96, 40, 40), *torch.randn(2, 96)], True),
    "head of a net": (head_of_a_net, lambda: [_last(16, 192, 14, 14), torch.randn(100, 192)], True),
    "stem": (stem, lambda: [_last(8, 64, 56, 56)], True),
    "groups at once": (groups_at_once, lambda: [_last(8, 96, 40, 40), *torch.randn(2, 96)], True),
    "spatial gate": (spatial_gate, lambda: [_last(8, 96, 40, 40), torch.randn(2)], True),
    "gates of axes": (gates_of_axes, lambda: [_last(8, 96, 40, 40)], True),
    "layer scale": (
        layer_scale,
        lambda: [_last(8, 96, 40, 40), _last(8, 96, 40, 40), torch.randn(96)],
        True,
    ),
    "lateral": (lateral, lambda: [_last(8, 64, 24, 24), _last(8, 64, 48, 48)], True),
    "pixel loss": (pixel_loss, lambda: [_last(4, 21, 96, 96), torch.randint(21, (4, 96, 96))], True),
    "trained slopes": (
        trained_slopes,
        lambda: [_last(8, 96, 40, 40), torch.rand(96), _last(8, 96, 40, 40)],
        True,
    ),
    "halved": (halved, lambda: [_last(8, 64, 56, 56), torch.randn(64)], True),
    "styled": (styled, lambda: [_last(8, 96, 40, 40), torch.randn(8, 96), torch.randn(8, 96)], True),
    "shifted in time": (shifted_in_time, lambda: [_last(16, 64, 28, 28)], True),
    "luma and chroma": (luma_and_chroma, lambda: [_last(8, 3, 200, 200)], True),
    "activated volume": (activated_volume, lambda: [_last(2, 32, 16, 32, 32), torch.randn(32)], True),
    "pictures in": (
        pictures_in,
        lambda: [torch.randint(256, (8, 200, 200, 3), dtype=torch.uint8), torch.rand(3), torch.rand(3) + 0.5],
        False,
    ),
    "pictures out": (pictures_out, lambda: [torch.randn(8, 3, 200, 200)], False),
    "softmax of keys": (keys_softmax, lambda: [torch.randn(700, 900), torch.rand(700)], True),
    "norm of transposed": (transposed_norm, lambda: [torch.randn(8, 256, 400), *torch.randn(2, 256)], True),
    "heads joined": (heads_joined, lambda: [torch.randn(8, 12, 200, 32), torch.randn(8, 200, 384)], True),
    "columns standardised": (columns_standard, lambda: [torch.randn(600, 1500).T], True),
}
