"""Functions of the fourth list, first part: boxes, sampling, positions, audio, graphs, quantisation,
statistics.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def _boxes(*counts: int) -> Made:
    """Boxes as left, top, right, bottom."""

    def made() -> list[Tensor]:
        corners = [torch.rand(count, 2) for count in counts]
        return [torch.cat([c, c + torch.rand(c.shape) * 0.5 + 0.01], 1) for c in corners]

    return made


def _area(boxes: Tensor) -> Tensor:
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def box_iou(a: Tensor, b: Tensor) -> Tensor:
    low = torch.maximum(a[:, None, :2], b[None, :, :2])
    high = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    return shared / (_area(a)[:, None] + _area(b)[None] - shared)


def generalised_iou(a: Tensor, b: Tensor) -> Tensor:
    size = (torch.min(a[:, 2:], b[:, 2:]) - torch.max(a[:, :2], b[:, :2])).clamp(min=0)
    shared = size[:, 0] * size[:, 1]
    union = _area(a) + _area(b) - shared
    hull = (torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])).prod(1)
    return (1 - shared / union + (hull - union) / hull).mean()


def decoded_boxes(anchors: Tensor, deltas: Tensor) -> Tensor:
    size = anchors[:, 2:] - anchors[:, :2]
    centre = anchors[:, :2] + size / 2 + deltas[:, :2] * 0.1 * size
    half = torch.exp((deltas[:, 2:] * 0.2).clamp(max=math.log(1000 / 16))) * size / 2
    return torch.cat([centre - half, centre + half], 1).clamp(0, 1)


def matrix_nms(boxes: Tensor, scores: Tensor) -> Tensor:
    order = scores.argsort(descending=True)
    overlap = box_iou(boxes[order], boxes[order]).triu(1)
    most = overlap.amax(0)
    decay = torch.exp(-(overlap**2 - most[:, None] ** 2) / 0.5).amin(0)
    return scores[order] * decay


def top_p(logits: Tensor) -> Tensor:
    ordered, at = logits.sort(-1, descending=True)
    shares = torch.softmax(ordered, -1)
    drop = shares.cumsum(-1) - shares > 0.9
    return torch.softmax(logits.masked_fill(torch.zeros_like(drop).scatter(-1, at, drop), -math.inf), -1)


def top_k(logits: Tensor) -> Tensor:
    least = logits.topk(50, -1).values[:, -1:]
    return torch.softmax(logits.masked_fill(logits < least, -math.inf) / 0.8, -1)


def repetition_penalty(logits: Tensor, said: Tensor) -> Tensor:
    found = logits.gather(1, said)
    return logits.scatter(1, said, torch.where(found < 0, found * 1.2, found / 1.2))


def gumbel(logits: Tensor, uniform: Tensor) -> Tensor:
    return (logits - torch.log(-torch.log(uniform.clamp(1e-9, 1 - 1e-7)))).argmax(-1)


def time_embedding(x: Tensor, t: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    rates = torch.exp(-math.log(10000.0) * torch.arange(half) / half)
    angles = t[:, None] * rates
    return x + torch.cat([angles.sin(), angles.cos()], -1)


def fourier_features(x: Tensor, rates: Tensor) -> Tensor:
    angles = 2 * math.pi * x[..., None] * rates
    return torch.cat([angles.sin(), angles.cos()], -1).flatten(-2)


def bucketed_bias(scores: Tensor, table: Tensor) -> Tensor:
    at = torch.arange(scores.shape[-1])
    far = at[None] - at[:, None]
    size = far.abs()
    large = 8 + (torch.log(size.clamp(min=1).float() / 8) / math.log(16) * 8).long()
    bucket = torch.where(size < 8, size, large.clamp(max=15)) + (far > 0) * 16
    return torch.softmax(scores + table[bucket].permute(2, 0, 1), -1)


def sink_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    at = torch.arange(q.shape[2])
    far = at[:, None] - at[None]
    seen = (far >= 0) & ((far < 96) | (at[None] < 4) | (at[None] % 64 == 0))
    scores = (q @ k.mT / 8).masked_fill(~seen, -math.inf)
    most = scores.amax(-1, keepdim=True).clamp(min=0)
    power = torch.exp(scores - most)
    return power @ v / (power.sum(-1, keepdim=True) + torch.exp(-most))


def frames(x: Tensor, window: Tensor) -> Tensor:
    louder = torch.cat([x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]], 1)
    cut = louder.unfold(-1, 400, 160)
    return (cut - cut.mean(-1, keepdim=True)) * window


def mel_features(spectrum: Tensor, filters: Tensor) -> Tensor:
    mel = torch.log10((spectrum[..., 0] ** 2 + spectrum[..., 1] ** 2) @ filters.abs() + 1e-10)
    mel = torch.maximum(mel, mel.amax((1, 2), keepdim=True) - 8)
    return (mel - mel.mean(1, keepdim=True)) / (mel.std(1, keepdim=True) + 1e-5)


def deltas(x: Tensor) -> Tensor:
    wide, size = F.pad(x, (2, 2), mode="replicate"), x.shape[-1]
    first, second = (wide[..., 2 + n :][..., :size] - wide[..., 2 - n :][..., :size] for n in (1, 2))
    return (first + 2 * second) / 10


def graph_attention(x: Tensor, score: Tensor, source: Tensor, target: Tensor) -> Tensor:
    edge = F.leaky_relu(score[source, 0] + score[target, 1], 0.2)
    most = torch.full((x.shape[0],), -math.inf).to(x).scatter_reduce(0, target, edge.detach(), "amax")
    power = torch.exp(edge - most[target])
    total = x.new_zeros(x.shape[0]).index_add(0, target, power)
    weight = power / (total[target] + 1e-16)
    return torch.zeros_like(x).index_add(0, target, weight[:, None] * x[source])


def graph_convolution(x: Tensor, source: Tensor, target: Tensor) -> Tensor:
    degree = x.new_zeros(x.shape[0]).index_add(0, target, torch.ones_like(target, dtype=x.dtype)) + 1
    scale = degree.rsqrt()
    weight = scale[source] * scale[target]
    mixed = torch.zeros_like(x).index_add(0, target, x[source] * weight[:, None])
    return F.relu(mixed + x * (1 / degree)[:, None])


def asymmetric_bytes(x: Tensor) -> Tensor:
    low, high = x.aminmax(dim=-1, keepdim=True)
    scale = (high - low).clamp(min=1e-8) / 255
    zero = (-low / scale).round().clamp(0, 255)
    q = (x / scale + zero).round().clamp(0, 255).to(torch.uint8)
    return (q.to(x.dtype) - zero) * scale


def code_book(x: Tensor, codes: Tensor) -> Tensor:
    blocks = x.unflatten(-1, (-1, 64))
    scale = blocks.abs().amax(-1, keepdim=True)
    near = (blocks / scale)[..., None] - codes
    return (codes[near.abs().argmin(-1)] * scale).flatten(-2)


def robust_scale(x: Tensor) -> Tensor:
    centred = x - x.median(-1, keepdim=True).values
    return centred / (1.4826 * centred.abs().median(-1, keepdim=True).values + 1e-6)


def shape_of_values(x: Tensor) -> Tensor:
    centred = x - x.mean(1, keepdim=True)
    variance = x.var((0, 1), correction=0)
    skew = (centred**3).mean((0, 1)) / variance**1.5
    return torch.stack([variance, skew, (centred**4).mean((0, 1)) / variance**2 - 3])


def soft_histogram(x: Tensor, centres: Tensor) -> Tensor:
    near = torch.exp(-0.5 * ((x[..., None] - centres) / 0.2) ** 2)
    made = near.sum(1)
    return made / made.sum(-1, keepdim=True)


def _edges(nodes: int, count: int) -> list[Tensor]:
    return [torch.randint(0, nodes, (count,)) for _ in range(2)]


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "overlaps of boxes": (box_iou, _boxes(512, 1024), True),
    "generalised overlap loss": (generalised_iou, _boxes(100_000, 100_000), True),
    "decoded boxes": (decoded_boxes, lambda: [*_boxes(100_000)(), torch.randn(100_000, 4)], True),
    "matrix suppression": (matrix_nms, lambda: [*_boxes(800)(), torch.rand(800)], False),
    "top p": (top_p, _of((64, 8000)), False),
    "top k": (top_k, _of((128, 8000)), True),
    "repetition penalty": (
        repetition_penalty,
        lambda: [torch.randn(64, 16000), torch.stack([torch.randperm(16000)[:512] for _ in range(64)])],
        True,
    ),
    "gumbel": (gumbel, lambda: [torch.randn(256, 4000), torch.rand(256, 4000)], False),
    "time embedding": (time_embedding, lambda: [torch.randn(4096, 256), torch.rand(4096) * 1000], True),
    "fourier features": (fourier_features, _of((16384, 3), (32,)), True),
    "bucketed bias": (bucketed_bias, _of((8, 8, 192, 192), (32, 8)), True),
    "attention with sinks": (sink_attention, _of(*[(2, 8, 256, 64)] * 3), True),
    "frames of audio": (frames, _of((8, 48000), (400,)), True),
    "mel features": (mel_features, _of((8, 300, 201, 2), (201, 80)), True),
    "deltas of features": (deltas, _of((32, 80, 500)), True),
    "graph attention": (
        graph_attention,
        lambda: [torch.randn(2000, 64), torch.randn(2000, 2), *_edges(2000, 20000)],
        True,
    ),
    "graph convolution": (graph_convolution, lambda: [torch.randn(2000, 64), *_edges(2000, 20000)], True),
    "asymmetric bytes": (asymmetric_bytes, _of((2048, 1024)), False),
    "code book": (code_book, lambda: [torch.randn(512, 1024), torch.linspace(-1, 1, 16)], False),
    "robust scale": (robust_scale, _of((512, 512)), False),
    "variance, skewness, kurtosis": (shape_of_values, _of((32, 256, 128)), True),
    "soft histogram": (soft_histogram, lambda: [torch.rand(16, 4096), torch.linspace(0, 1, 32)], True),
}
"""Name: the function, its tensors, and whether it has gradients."""
