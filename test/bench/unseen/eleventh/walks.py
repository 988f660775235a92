"""Functions of the eleventh list with scans, pools or windows."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def walked(x: Tensor, drift: Tensor) -> Tensor:
    """Paths of random steps with drift: [time, paths]."""
    return torch.exp(0.01 * (x + drift).cumsum(0))


def suffix_weights(x: Tensor, reward: Tensor) -> Tensor:
    """Sums of the rewards to come: [batch, time, k]."""
    return (torch.sigmoid(x) * reward).flip(1).cumsum(1).flip(1)


def running_log_sums(x: Tensor) -> Tensor:
    """Logarithms of running sums of exponentials: [rows, n]."""
    return x - torch.logcumsumexp(x, -1)


def support_levels(price: Tensor) -> Tensor:
    """Prices over their lowest so far: [time, assets]."""
    return price / price.cummin(0).values - 1


def resistance(price: Tensor) -> Tensor:
    """Distance from the highest so far in units of the last change: [batch, time, k]."""
    high = price.cummax(1).values
    return (high - price) / (1 + price.abs())


def survival(x: Tensor) -> Tensor:
    """Chance to end in each interval: [rows, intervals]."""
    stop = torch.sigmoid(x)
    return stop * F.pad((1 - stop).cumprod(-1)[:, :-1], (1, 0), value=1.0)


def composited_layers(alpha: Tensor, colour: Tensor) -> Tensor:
    """Layers over each other, front first: [layers, h, w] twice."""
    a = torch.sigmoid(alpha)
    through = torch.cat([torch.ones_like(a[:1]), (1 - a).cumprod(0)[:-1]])
    return (a * through * colour).sum(0)


def opened(x: Tensor) -> Tensor:
    """Bright spots smaller than nine by nine: [n, 1, h, w]."""
    low = -F.max_pool2d(-x, 9, 1, 4)
    return x - F.max_pool2d(low, 9, 1, 4)


def local_contrast(x: Tensor) -> Tensor:
    """Pixels less the mean of their surroundings over the spread there: [n, c, h, w]."""
    mean = F.avg_pool2d(x, 7, 1, 3, count_include_pad=False)
    square = F.avg_pool2d(x * x, 7, 1, 3, count_include_pad=False)
    return (x - mean) * torch.rsqrt((square - mean * mean).clamp(min=0) + 1e-2)


def strongest_corners(x: Tensor) -> Tensor:
    """Corner responses that are the largest of eleven by eleven: [n, 1, h, w]."""
    dx, dy = x[..., 1:-1, 2:] - x[..., 1:-1, :-2], x[..., 2:, 1:-1] - x[..., :-2, 1:-1]
    xx, yy, xy = (F.avg_pool2d(t, 3, 1, 1) for t in (dx * dx, dy * dy, dx * dy))
    response = xx * yy - xy * xy - 0.05 * (xx + yy).square()
    return response * (response == F.max_pool2d(response, 11, 1, 5))


def peak_hold(x: Tensor) -> Tensor:
    """Largest amplitude of the 65 samples around each: [channels, 1, time]."""
    return x / (F.max_pool1d(x.abs(), 65, 1, 32) + 1e-3)


def eroded_volume(x: Tensor) -> Tensor:
    """Smallest of five in each direction: [n, c, d, h, w]."""
    return -F.max_pool3d(-x, 5, 1, 2)


def coarse_levels(x: Tensor) -> Tensor:
    """Differences of means of 2, 4 and 8 points, repeated to the full size: [n, c, h, w]."""
    a, b, c = ((F.interpolate(F.avg_pool2d(x, k), scale_factor=float(k)) - x).square() for k in (2, 4, 8))
    return 0 + a + b + c


def summed_areas(x: Tensor) -> Tensor:
    """Table of sums over all rectangles from the corner: [n, h, w]."""
    return x.cumsum(-1).cumsum(-2)


def rolling_spread(x: Tensor) -> Tensor:
    """Spread of the last 50 values from running sums: [batch, time]."""
    both = torch.stack([x, x * x]).cumsum(-1)
    part = (both[..., 50:] - both[..., :-50]) / 50
    return torch.sqrt((part[1] - part[0] * part[0]).clamp(min=1e-6))


def causal_normaliser(q: Tensor, k: Tensor) -> Tensor:
    """Sums of the keys so far times each query: [batch, heads, time, k]."""
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return q / ((q * k.cumsum(2)).sum(-1, keepdim=True) + 1e-6)


def moved_earth(x: Tensor, y: Tensor) -> Tensor:
    """Distance of two histograms as the earth to be moved: [rows, bins] twice."""
    return (torch.softmax(x, -1).cumsum(-1) - torch.softmax(y, -1).cumsum(-1)).abs().sum(-1)


def ranked_scores(x: Tensor, truth: Tensor) -> Tensor:
    """Squared differences of cumulated chances from a step at the truth: [rows, bins], [rows]."""
    step = (torch.arange(x.shape[1]) >= truth[:, None]).to(x.dtype)
    return (torch.softmax(x, 1).cumsum(1) - step).square().mean(1)


def maxima_of_regions(x: Tensor) -> Tensor:
    """Maxima of the whole plane, its quarters and sixteenths: [n, c, h, w]."""
    return torch.cat([F.adaptive_max_pool2d(x, k).flatten(1) for k in (1, 2, 4)], 1)


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "walked": (walked, _of((250, 4000), (4000,)), True),
    "suffix weights": (suffix_weights, _of((16, 200, 64), (16, 200, 64)), True),
    "running log sums": (running_log_sums, _of((1000, 300)), True),
    "support levels": (support_levels, lambda: [torch.rand(250, 2000) + 1], True),
    "resistance": (resistance, _of((16, 200, 128)), True),
    "survival": (survival, _of((2000, 120)), True),
    "layers composited": (composited_layers, _of((48, 120, 120), (48, 120, 120)), True),
    "opened": (opened, lambda: [torch.rand(4, 1, 160, 160)], True),
    "local contrast": (local_contrast, _of((4, 3, 120, 120)), True),
    "strongest corners": (strongest_corners, lambda: [torch.rand(4, 1, 160, 160)], False),
    "peak hold": (peak_hold, _of((8, 1, 16_000)), True),
    "eroded volume": (eroded_volume, _of((1, 4, 24, 32, 32)), True),
    "coarse levels": (coarse_levels, _of((4, 16, 96, 96)), True),
    "summed areas": (summed_areas, _of((16, 160, 160)), True),
    "rolling spread": (rolling_spread, _of((64, 5000)), True),
    "causal normaliser": (causal_normaliser, _of((4, 8, 256, 64), (4, 8, 256, 64)), True),
    "moved earth": (moved_earth, _of((4000, 64), (4000, 64)), True),
    "ranked scores": (ranked_scores, lambda: [torch.randn(4000, 100), torch.randint(100, (4000,))], True),
    "maxima of regions": (maxima_of_regions, _of((16, 64, 28, 28)), True),
}
