"""Functions of the twelfth list that are losses and metrics."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def varifocal(x: Tensor, quality: Tensor) -> Tensor:
    """Varifocal loss of detectors: logits and qualities of [anchors, classes]."""
    p = torch.sigmoid(x)
    weight = torch.where(quality > 0, quality, 0.75 * (p - quality).abs().square())
    return (F.binary_cross_entropy_with_logits(x, quality, reduction="none") * weight).sum() / len(x)


def dice_of_volumes(x: Tensor, label: Tensor) -> Tensor:
    """Dice loss with weights of inverse squared volumes: [n, classes, d, h, w]."""
    p = torch.softmax(x, 1).flatten(2)
    t = F.one_hot(label, x.shape[1]).movedim(-1, 1).flatten(2).to(p.dtype)
    weight = 1 / (t.sum(2).square() + 1)
    top = (weight * (p * t).sum(2)).sum(1)
    return 1 - (2 * top / (weight * (p + t).sum(2)).sum(1)).mean()


def poly_loss(x: Tensor, label: Tensor) -> Tensor:
    """Cross entropy plus its first polynomial term, without ignored rows: [n, classes], [n]."""
    kept = label >= 0
    at = label.clamp(min=0)
    log = torch.log_softmax(x, -1).gather(1, at[:, None]).squeeze(1)
    loss = -log + 1.5 * (1 - log.exp())
    return (loss * kept).sum() / kept.sum()


def restoration_loss(x: Tensor, y: Tensor) -> Tensor:
    """Charbonnier loss of pictures and of their Laplacians: [n, 3, h, w] twice."""
    off = x - y
    inner = off[..., 1:-1, 1:-1]
    around = off[..., :-2, 1:-1] + off[..., 2:, 1:-1] + off[..., 1:-1, :-2] + off[..., 1:-1, 2:]
    edges = inner - 0.25 * around
    return torch.sqrt(off.square() + 1e-6).mean() + 0.05 * torch.sqrt(edges.square() + 1e-6).mean()


def confusion(x: Tensor, label: Tensor) -> Tensor:
    """Mean intersection over union from the table of predicted and true classes: [n, classes, h, w]."""
    classes = x.shape[1]
    at = (label * classes + x.argmax(1)).flatten()
    counts = torch.zeros(classes * classes).scatter_add_(0, at, torch.ones(at.numel()))
    counts = counts.view(classes, classes)
    both = counts.diagonal()
    return (both / (counts.sum(0) + counts.sum(1) - both).clamp(min=1)).mean()


def calibration_error(x: Tensor, label: Tensor) -> Tensor:
    """Gap of confidence and accuracy in 15 bins: [n, classes], [n]."""
    sure, guess = torch.softmax(x, 1).max(1)
    right = (guess == label).to(sure.dtype)
    inside = F.one_hot((sure * 15).long().clamp(max=14), 15).to(sure.dtype)
    count = inside.sum(0)
    gap = ((sure - right)[:, None] * inside).sum(0)
    return gap.abs().sum() / count.sum()


def spread_of_features(x: Tensor) -> Tensor:
    """Entropy estimate by distances of nearest neighbours on the sphere: [n, k]."""
    x = F.normalize(x, dim=-1)
    dots = (x @ x.T).masked_fill(torch.eye(len(x), dtype=torch.bool), -1.0)
    return -torch.log((2 - 2 * dots.amax(1)).clamp(min=1e-8).sqrt()).mean()


def teacher_and_student(teacher: Tensor, student: Tensor, centre: Tensor) -> Tensor:
    """Cross entropy of a centred teacher's chances and a student's, in bf16: [views, n, k] twice, [k]."""
    p = torch.softmax((teacher.float() - centre) / 0.06, -1)
    q = torch.log_softmax(student.float() / 0.1, -1)
    return -(p[:, None] * q[None]).sum(-1).mean()


def average_precision(score: Tensor, relevant: Tensor) -> Tensor:
    """Mean average precision of rankings: scores and relevances of [queries, n]."""
    hit = relevant.gather(1, score.argsort(1, descending=True))
    place = torch.arange(1, hit.shape[1] + 1)
    precision = hit.cumsum(1) / place
    return ((precision * hit).sum(1) / hit.sum(1).clamp(min=1)).mean()


def gain_of_ranking(score: Tensor, gain: Tensor) -> Tensor:
    """Discounted gains over their ideal: [queries, n] twice."""
    discount = 1 / torch.log2(torch.arange(2, score.shape[1] + 2).to(gain.dtype))
    found = gain.gather(1, score.argsort(1, descending=True))
    best = gain.sort(1, descending=True).values
    return (found * discount).sum(1) / (best * discount).sum(1).clamp(min=1e-9)


def signal_to_distortion(x: Tensor, y: Tensor) -> Tensor:
    """Scale-invariant ratio of signal and distortion in decibels: [n, time] twice."""
    x, y = (t - t.mean(-1, keepdim=True) for t in (x, y))
    scale = (x * y).sum(-1, keepdim=True) / (y.square().sum(-1, keepdim=True) + 1e-8)
    target = scale * y
    ratio = target.square().sum(-1) / ((x - target).square().sum(-1) + 1e-8)
    return 10 * torch.log10(ratio + 1e-8)


def greedy_labels(x: Tensor) -> Tensor:
    """Labels of the best path without repetitions and blanks, and minus one: [n, time, labels]."""
    best = x.argmax(-1)
    before = F.pad(best[:, :-1], (1, 0), value=-1)
    return torch.where((best != before) & (best != 0), best, -1)


def noise_of_bytes(x: Tensor, y: Tensor) -> Tensor:
    """Peak signal-to-noise ratio of pictures of bytes: [n, 3, h, w] twice."""
    off = x.float() - y.float()
    return 20 * math.log10(255) - 10 * torch.log10(off.square().mean((1, 2, 3)) + 1e-8)


def perceptual(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Weighted squared distance of normalised features: [n, c, h, w] twice, [c]."""
    x, y = (t / (t.square().sum(1, keepdim=True).sqrt() + 1e-10) for t in (x, y))
    return ((x - y).square() * w[:, None, None]).sum(1).mean((1, 2))


def mask_overlaps(x: Tensor, y: Tensor) -> Tensor:
    """Intersections over unions of all pairs of masks: logits [n, h, w] and masks [m, h, w]."""
    a, b = (x > 0).flatten(1).float(), y.flatten(1).float()
    both = a @ b.T
    return both / (a.sum(1)[:, None] + b.sum(1) - both).clamp(min=1)


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "qualities of anchors": (
        varifocal,
        lambda: [torch.randn(8400, 80), (torch.rand(8400, 80) - 0.9).clamp(min=0)],
        True,
    ),
    "dice of volumes": (
        dice_of_volumes,
        lambda: [torch.randn(2, 5, 24, 40, 40), torch.randint(5, (2, 24, 40, 40))],
        True,
    ),
    "poly loss": (poly_loss, lambda: [torch.randn(3000, 333), torch.randint(-1, 333, (3000,))], True),
    "restoration": (restoration_loss, _of((8, 3, 131, 131), (8, 3, 131, 131)), True),
    "confusion": (
        confusion,
        lambda: [torch.randn(4, 19, 100, 100), torch.randint(19, (4, 100, 100))],
        False,
    ),
    "calibration": (calibration_error, lambda: [torch.randn(5000, 100), torch.randint(100, (5000,))], False),
    "spread of features": (spread_of_features, _of((700, 96)), True),
    "teacher and student": (
        teacher_and_student,
        lambda: [torch.randn(2, 64, 1500).bfloat16(), torch.randn(4, 64, 1500).bfloat16(), torch.zeros(1500)],
        True,
    ),
    "average precision": (
        average_precision,
        lambda: [torch.randn(300, 400), (torch.rand(300, 400) < 0.1).float()],
        False,
    ),
    "gain of ranking": (
        gain_of_ranking,
        lambda: [torch.randn(1000, 60), torch.randint(5, (1000, 60)).float()],
        False,
    ),
    "signal to distortion": (signal_to_distortion, _of((32, 16_001), (32, 16_001)), True),
    "greedy labels": (greedy_labels, _of((16, 400, 77)), False),
    "noise of bytes": (
        noise_of_bytes,
        lambda: [torch.randint(256, (16, 3, 150, 150), dtype=torch.uint8) for _ in range(2)],
        False,
    ),
    "perceptual": (perceptual, lambda: [*_of((8, 64, 31, 31), (8, 64, 31, 31))(), torch.rand(64)], True),
    "mask overlaps": (
        mask_overlaps,
        lambda: [torch.randn(100, 112, 112), torch.rand(30, 112, 112) < 0.5],
        False,
    ),
}
