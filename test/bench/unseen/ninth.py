"""Functions of the ninth list, first part: activations, norms, reductions, scans, pools, losses."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def squareplus(x: Tensor, b: Tensor) -> Tensor:
    """A smooth ReLU by a root, times an error function of it, odd sizes."""
    made = 0.5 * (x + torch.sqrt(x * x + F.softplus(b)))
    return x * torch.erf(made)


def laplace_gate(x: Tensor) -> Tensor:
    """Half of the channels under a gate of the other half: [batch, channels, h, w]."""
    a, b = x.chunk(2, 1)
    return a * 0.5 * (1 + torch.erf((b - 0.7071) / (0.2821 * math.sqrt(2))))


def cubic_norm(x: Tensor) -> Tensor:
    """Pixels over the third norm of their channels."""
    return x / x.abs().pow(3).sum(1, keepdim=True).pow(1 / 3).clamp(min=1e-6)


def plane_shares(x: Tensor) -> Tensor:
    """Planes over the sums of their absolute values, less the mean over the batch."""
    made = x / x.abs().sum((2, 3), keepdim=True)
    return made - made.mean(0, keepdim=True)


def root_mean_residual(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """RMS norm of a residual sum, behind the sum itself: rows of odd width."""
    h = x + y
    return torch.stack([h, h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5) * w])


def voices_normed(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.tanh(F.instance_norm(x, weight=w, bias=b))


def group_hardswish(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.hardswish(F.group_norm(x, 3, w, b))


def batch_relu6(x: Tensor, w: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """Batch norm of a training step over odd planes, under a ReLU of at most six."""
    return F.relu6(F.batch_norm(x + bias[:, None, None], None, None, w, b, training=True))


def soft_maximum(x: Tensor) -> Tensor:
    """Log of a mean of exponentials over the middle, subtracted."""
    return x - torch.logsumexp(x, 1, keepdim=True) + math.log(x.shape[1])


def smallest(x: Tensor) -> Tensor:
    """Values of rows over their smallest one, where it is not the first."""
    least, at = x.min(-1, keepdim=True)
    return torch.where(at > 0, x - least, x * 0.5)


def brightest(x: Tensor) -> Tensor:
    """Where the first dim is largest, and by how much over its mean."""
    return x.argmax(0) + (x.amax(0) - x.mean(0))


def spread_of_two(x: Tensor) -> Tensor:
    return x.amax((1, 3)) - x.amin((1, 3))


def largest_columns(x: Tensor, y: Tensor) -> Tensor:
    """The largest product of each column, scaled by its norm: [rows, columns]."""
    made = x * y
    return made.max(0).values / made.square().sum(0).sqrt()


def cumulated_logs(x: Tensor) -> Tensor:
    return torch.exp(x - torch.logcumsumexp(x, -1))


def running_minimum(x: Tensor) -> Tensor:
    """Drops to the lowest value so far over the middle dim."""
    return x - x.cummin(1).values


def suffix_products(x: Tensor) -> Tensor:
    """Products of all later elements: [rows, n]."""
    made = torch.sigmoid(x).flip(-1).cumprod(-1).flip(-1)
    return F.pad(made[:, 1:], (0, 1), value=1.0)


def counts_before(x: Tensor) -> Tensor:
    """How many earlier rows of a column are positive, over how many rows there are."""
    high = (x > 0).int()
    return (high.cumsum(0) - high) / torch.arange(1, x.shape[0] + 1)[:, None]


def odd_windows(x: Tensor) -> Tensor:
    return F.max_pool2d(F.leaky_relu(x, 0.1), (5, 3), (2, 1), (2, 1)) * 0.5


def pool_mixer(x: Tensor, scale: Tensor) -> Tensor:
    """A mean over neighbours, less the pixel, scaled by channel, as a residual."""
    return x + scale[:, None, None] * (F.avg_pool2d(x, 3, 1, 1, count_include_pad=False) - x)


def mixed_pool(x: Tensor, share: Tensor) -> Tensor:
    """Maxima and means of odd boxes in a learned mixture."""
    a = torch.sigmoid(share)
    return a * F.max_pool3d(x, (3, 2, 3), (2, 2, 2)) + (1 - a) * F.avg_pool3d(x, (3, 2, 3), (2, 2, 2))


def floor_of_noise(x: Tensor) -> Tensor:
    """A signal over the minimum of a window around it: [batch, channels, time]."""
    return torch.log1p(x.abs()) + F.max_pool1d(-x.abs(), 9, 1, 4)


def several_margins(x: Tensor, label: Tensor) -> Tensor:
    return F.multi_margin_loss(x, label, p=2, margin=0.7, reduction="none")


def jensen_shannon(a: Tensor, b: Tensor) -> Tensor:
    p, q = torch.softmax(a, -1), torch.softmax(b, -1)
    m = (0.5 * (p + q)).log()
    return 0.5 * (F.kl_div(m, p, reduction="batchmean") + F.kl_div(m, q, reduction="batchmean"))


def log_cosh(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    off = x - y
    return ((off + F.softplus(-2 * off) - math.log(2)) * w).sum() / w.sum()


def asymmetric_labels(x: Tensor, label: Tensor) -> Tensor:
    """Many labels at once, easy negatives shifted away: [batch, classes]."""
    p = torch.sigmoid(x)
    no = (1 - p + 0.05).clamp(max=1)
    made = label * torch.log(p.clamp(min=1e-8)) + (1 - label) * torch.log(no.clamp(min=1e-8))
    chance = p * label + no * (1 - label)
    return -(made * (1 - chance) ** (1 * label + 4 * (1 - label))).sum(-1).mean()


def both_ways(x: Tensor, y: Tensor, heat: Tensor) -> Tensor:
    """Cross entropy of pictures to texts and of texts to pictures."""
    logits = F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).T * heat.exp()
    at = torch.arange(x.shape[0])
    return (F.cross_entropy(logits, at) + F.cross_entropy(logits.T, at)) / 2


def same_or_not(x: Tensor, y: Tensor, sign: Tensor) -> Tensor:
    return F.cosine_embedding_loss(x, y, sign, margin=0.2)


def counts_loss(x: Tensor, count: Tensor) -> Tensor:
    """Poisson's likelihood with Stirling's term."""
    return F.poisson_nll_loss(x, count.to(x.dtype), log_input=True, full=True)


def triplets_with_distances(a: Tensor, p: Tensor, n: Tensor) -> Tensor:
    """A soft margin of distances, with the swap of anchor and positive."""
    near, far = (a - p).norm(dim=-1), torch.minimum((a - n).norm(dim=-1), (p - n).norm(dim=-1))
    return F.softplus(near - far).mean()


def border_dice(x: Tensor, mask: Tensor) -> Tensor:
    """Overlap of soft masks by class, pixels at borders weighted: [batch, classes, h, w]."""
    p = torch.softmax(x, 1)
    border = F.max_pool2d(mask, 3, 1, 1) + F.max_pool2d(-mask, 3, 1, 1)
    w = 1 + 4 * border
    both, total = (w * p * mask).sum((0, 2, 3)), (w * (p + mask)).sum((0, 2, 3))
    return 1 - ((2 * both + 1) / (total + 1)).mean()


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "squareplus": (squareplus, _of((33, 1021, 57), ()), True),
    "gate of Laplace": (laplace_gate, _of((8, 62, 63, 65)), True),
    "cubic norm": (cubic_norm, _of((16, 48, 56, 56)), True),
    "shares of planes": (plane_shares, _of((16, 96, 35, 35)), True),
    "root mean of a residual": (root_mean_residual, _of((4096, 333), (4096, 333), (333,)), True),
    "voices normed": (voices_normed, _of((32, 13, 4001), (13,), (13,)), True),
    "group norm and hardswish": (group_hardswish, _of((32, 21, 57, 63), (21,), (21,)), True),
    "batch norm and relu6": (batch_relu6, _of((16, 30, 47, 53), (30,), (30,), (30,)), True),
    "soft maximum": (soft_maximum, _of((32, 200, 192)), True),
    "smallest of rows": (smallest, _of((3001, 333)), True),
    "brightest of the first": (brightest, _of((193, 64, 67)), False),
    "spread of two dims": (spread_of_two, _of((16, 32, 48, 50)), True),
    "largest of columns": (largest_columns, _of((1500, 700), (1500, 700)), True),
    "cumulated logs": (cumulated_logs, _of((256, 1000)), True),
    "running minimum": (running_minimum, _of((32, 100, 192)), True),
    "suffix products": (suffix_products, _of((2048, 700)), True),
    "counts before": (counts_before, _of((500, 1000)), False),
    "odd windows": (odd_windows, _of((8, 24, 65, 67)), True),
    "pool mixer": (pool_mixer, _of((8, 48, 40, 40), (48,)), True),
    "mixed pool": (mixed_pool, _of((4, 16, 25, 32, 33), ()), True),
    "floor of noise": (floor_of_noise, _of((16, 20, 3000)), True),
    "several margins": (
        several_margins,
        lambda: [torch.randn(8000, 50), torch.randint(50, (8000,))],
        True,
    ),
    "Jensen and Shannon": (jensen_shannon, _of((2000, 200), (2000, 200)), True),
    "log cosh": (log_cosh, lambda: [*_of((1000, 777), (1000, 777))(), torch.rand(777)], True),
    "asymmetric labels": (
        asymmetric_labels,
        lambda: [torch.randn(2048, 80), (torch.rand(2048, 80) < 0.1).float()],
        True,
    ),
    "both ways": (both_ways, _of((512, 192), (512, 192), ()), True),
    "same or not": (
        same_or_not,
        lambda: [*_of((16_384, 160), (16_384, 160))(), 2.0 * torch.randint(2, (16_384,)) - 1],
        True,
    ),
    "counts": (counts_loss, lambda: [torch.randn(700, 500), torch.randint(9, (700, 500))], True),
    "soft triplets": (triplets_with_distances, _of(*[(8192, 100)] * 3), True),
    "dice at borders": (
        border_dice,
        lambda: [torch.randn(4, 5, 120, 120), (torch.rand(4, 5, 120, 120) < 0.3).float()],
        True,
    ),
}
