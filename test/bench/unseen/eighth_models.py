"""Functions of the eighth list, second part: samplers, few bits, activations, positions, routing, losses,
pictures, integers."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def preconditioned(x: Tensor, found: Tensor, sigma: Tensor) -> Tensor:
    """A step of Heun's first half with scales of the noise's deviation: [batch, channels, h, w]."""
    s = (1.2 * sigma - 1.2).exp().view(-1, 1, 1, 1)
    skip, out = 0.25 / (s**2 + 0.25), s * 0.5 / (s**2 + 0.25).sqrt()
    clean = skip * x + out * found
    slope = (x - clean) / s
    return x + slope * (0.8 * s - s)


def logit_normal(x: Tensor, noise: Tensor, found: Tensor, z: Tensor) -> Tensor:
    """The loss of a rectified flow at times of a normal law through a sigmoid, by example."""
    t = torch.sigmoid(z)[:, None, None]
    shifted = 3 * t / (1 + 2 * t)
    mixed = (1 - shifted) * x + shifted * noise
    return ((found + 0.1 * mixed - (noise - x)) ** 2).flatten(1).mean(1)


def packed_weights(x: Tensor, packed: Tensor, zeros: Tensor, scale: Tensor) -> Tensor:
    """A product with weights of four bits, eight in each integer, scaled in groups of 128 rows."""
    shift = torch.arange(0, 32, 4, dtype=torch.int32)
    w = (packed[:, None] >> shift[:, None]) & 15
    z = (zeros[..., None] >> shift) & 15
    w = w.reshape(-1, packed.shape[1]).unflatten(0, (-1, 128))
    made = (w - z.flatten(1)[:, None]).to(x.dtype) * scale[:, None]
    return x @ made.flatten(0, 1)


def micro_scaled(x: Tensor) -> Tensor:
    """Values rounded to three bits under a shared power of two of each 32: [rows, columns]."""
    blocks = x.unflatten(-1, (-1, 32))
    top = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-30)
    scale = torch.exp2(torch.floor(torch.log2(top)) - 2)
    scaled = (blocks / scale).clamp(-6, 6)
    step = torch.exp2(torch.floor(torch.log2(scaled.abs().clamp(min=1.0))) - 1)
    return (torch.round(scaled / step) * step * scale).flatten(-2)


def learned_step(x: Tensor, step: Tensor) -> Tensor:
    """Fake quantisation to four bits with a learned step of each channel, straight through."""
    share = 1 / math.sqrt(x[0].numel() * 7)
    size = step.abs() * share + (step.abs() * (1 - share)).detach() + 0.05
    scaled = (x / size[:, None]).clamp(-8, 7)
    return ((scaled.round() - scaled).detach() + scaled) * size[:, None]


def row_bytes(x: Tensor, residual: Tensor, w: Tensor) -> Tensor:
    """A residual and RMS norm in f16, quantised to int8 by row: [rows, width]."""
    h = (x + residual).float()
    h = (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w
    scale = h.abs().amax(-1, keepdim=True).float() / 127
    return (h.float() / scale.clamp(min=1e-8)).round().clamp(-128, 127).to(torch.int8)


def trained_bend(x: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """An activation of a trained parabola and a trained exponential, in bf16: [rows, width]."""
    a, b = F.softplus(positive), 0.5 + F.softplus(negative)
    bent = b * (torch.expm1(torch.clamp(x, max=-1e-6)) - x) + 0.5 * x
    return torch.where(x > 0, a * x * x + 0.5 * x, bent)


def evolved_norm(x: Tensor, v: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """An evolved norm and activation: a swish over deviations of groups of channels."""
    groups = x.unflatten(1, (8, -1))
    deviation = torch.sqrt(groups.var((2, 3, 4), keepdim=True) + 1e-5).expand_as(groups).reshape_as(x)
    v, gain, bias = (t[:, None, None] for t in (v, gain, bias))
    return x * torch.sigmoid(v * x) / deviation * gain + bias


def filter_response(x: Tensor, gain: Tensor, bias: Tensor, level: Tensor) -> Tensor:
    """Filter response normalisation and its thresholded unit: [batch, channels, h, w]."""
    square = x.pow(2).mean((2, 3), keepdim=True)
    made = x * torch.rsqrt(square + 1e-6) * gain[:, None, None] + bias[:, None, None]
    return torch.maximum(made, level[:, None, None])


def axial_rotary(q: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Half of a head turned by rows' angles, half by columns': [batch, heads, side, side, width]."""
    n = torch.arange(q.shape[-1] // 4, dtype=q.dtype)
    angle = torch.exp(-math.log(100.0) * n / (q.shape[-1] // 4))
    parts = []
    for part, place in zip(q.chunk(2, -1), (row[:, None, None], column[None, :, None]), strict=True):
        cosine, sine = torch.cos(place * angle).squeeze(-2), torch.sin(place * angle).squeeze(-2)
        even, odd = part[..., 0::2], part[..., 1::2]
        turned = torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1)
        parts.append(turned.flatten(-2))
    return torch.cat(parts, -1)


def picture_positions(mask: Tensor) -> Tensor:
    """Sines and cosines of places inside of pictures of different sizes: [batch, h, w]."""
    y, x = mask.cumsum(1, dtype=torch.float32), mask.cumsum(2, dtype=torch.float32)
    y, x = y / (y[:, -1:] + 1e-6) * 2 * math.pi, x / (x[:, :, -1:] + 1e-6) * 2 * math.pi
    n = torch.arange(64, dtype=torch.float32)
    scale = 10_000 ** (2 * torch.div(n, 2, rounding_mode="floor") / 64)
    x, y = x[..., None] / scale, y[..., None] / scale
    x = torch.stack((x[..., 0::2].sin(), x[..., 1::2].cos()), 4).flatten(3)
    y = torch.stack((y[..., 0::2].sin(), y[..., 1::2].cos()), 4).flatten(3)
    return torch.cat((y, x), 3).permute(0, 3, 1, 2)


def random_features(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """Attention by positive random features: [batch, heads, length, width]."""
    q, k = (t / t.shape[-1] ** 0.25 for t in (q, k))
    a, b = (t @ w - (t * t).sum(-1, keepdim=True) / 2 for t in (q, k))
    a = torch.exp(a - a.amax(-1, keepdim=True)) + 1e-4
    b = torch.exp(b - b.amax((-1, -2), keepdim=True)) + 1e-4
    return (a @ (b.transpose(-1, -2) @ v)) / (a * b.sum(-2, keepdim=True)).sum(-1, keepdim=True)


def weighted_keys(k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor) -> Tensor:
    """Weighted keys and values, stabilised by a running maximum: [batch, 16 steps, width]."""
    top, above, below, made = k[:, 0] * 0 - 10, v[:, 0] * 0, v[:, 0] * 0, []
    for n in range(k.shape[1]):
        new = torch.maximum(top, bonus + k[:, n])
        old, now = torch.exp(top - new), torch.exp(bonus + k[:, n] - new)
        made.append((old * above + now * v[:, n]) / (old * below + now))
        new = torch.maximum(top - decay.exp(), k[:, n])
        old, now = torch.exp(top - decay.exp() - new), torch.exp(k[:, n] - new)
        top, above, below = new, old * above + now * v[:, n], old * below + now
    return torch.stack(made, 1)


def balanced_experts(logits: Tensor) -> Tensor:
    """The losses of a router: balance of experts, and squared log sums: [tokens, experts]."""
    share = torch.softmax(logits, -1)
    _, chosen = share.topk(2, -1)
    load = F.one_hot(chosen, logits.shape[-1]).to(logits.dtype).sum(1).mean(0)
    z = torch.logsumexp(logits, -1) ** 2
    return logits.shape[-1] * (load * share.mean(0)).sum() + 1e-3 * z.mean()


def capacity(expert: Tensor, share: Tensor) -> Tensor:
    """Shares of tokens that an expert has room for, first come first served: [tokens, 2]."""
    ones = F.one_hot(expert.T.flatten(), 32)
    place = ((ones.cumsum(0) - 1) * ones).sum(-1).view(2, -1).T
    kept = torch.where(place < 600, share, 0.0)
    return kept / kept.sum(-1, keepdim=True).clamp(min=1e-6)


def ctc(chance: Tensor, label: Tensor) -> Tensor:
    """Likelihood of labels with blanks between them: [16 steps, batch, letters] and [batch, labels]."""
    blank = F.pad(label[..., None], (1, 0)).flatten(1)
    logits = F.log_softmax(chance, -1)
    skips = (blank != 0) & (blank != F.pad(blank[:, :-2], (2, 0)))
    alpha = F.pad(logits[0].gather(1, blank)[:, :2], (0, blank.shape[1] - 2), value=-1e4)
    for n in range(1, chance.shape[0]):
        one, two = F.pad(alpha[:, :-1], (1, 0), value=-1e4), F.pad(alpha[:, :-2], (2, 0), value=-1e4)
        two = torch.where(skips, two, -1e4)
        alpha = torch.logsumexp(torch.stack([alpha, one, two]), 0) + logits[n].gather(1, blank)
    return -torch.logaddexp(alpha[:, -1], alpha[:, -2])


def penalised_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Cross entropy of tokens, some ignored, with a penalty of log sums, over those that count."""
    logits = 30 * torch.tanh(logits / 30)
    total = torch.logsumexp(logits, -1)
    counted = target >= 0
    found = logits.gather(-1, target.clamp(min=0)[:, None])[:, 0]
    each = total - found + 1e-4 * total**2
    return (each * counted).sum() / counted.sum()


def lovasz(logits: Tensor, label: Tensor) -> Tensor:
    """Lovasz' hinge loss of masks: [batch, pixels]."""
    wrong = 1 - logits * (2 * label - 1)
    wrong, order = torch.sort(wrong, -1, descending=True)
    right = label.gather(-1, order)
    total = right.sum(-1, keepdim=True)
    union = total + (1 - right).cumsum(-1)
    index = 1 - (total - right.cumsum(-1)) / union
    index = torch.cat([index[:, :1], index[:, 1:] - index[:, :-1]], -1)
    return (F.relu(wrong) * index).sum(-1).mean()


def centre_lines(x: Tensor) -> Tensor:
    """Soft skeletons of masks by pools: [batch, 1, h, w]."""

    def eroded(t: Tensor) -> Tensor:
        return torch.min(-F.max_pool2d(-t, (3, 1), 1, (1, 0)), -F.max_pool2d(-t, (1, 3), 1, (0, 1)))

    def opened(t: Tensor) -> Tensor:
        return F.max_pool2d(eroded(t), 3, 1, 1)

    x = torch.sigmoid(x)
    line = F.relu(x - opened(x))
    for _ in range(2):
        x = eroded(x)
        thin = F.relu(x - opened(x))
        line = line + F.relu(thin - line * thin)
    return line


def jittered(x: Tensor, by: Tensor) -> Tensor:
    """Brightness, contrast, saturation and hue of pictures changed: [batch, 3, h, w] and [batch, 4]."""
    bright, contrast, colour, hue = (0.6 + 0.8 * by[:, n, None, None, None] for n in range(4))
    x = (x * bright).clamp(0, 1)
    weight = torch.tensor([0.299, 0.587, 0.114], dtype=x.dtype)[:, None, None]
    grey = (x * weight).sum(1, keepdim=True).mean((2, 3), keepdim=True)
    x = (contrast * x + (1 - contrast) * grey).clamp(0, 1)
    grey = (x * weight).sum(1, keepdim=True)
    x = (colour * x + (1 - colour) * grey).clamp(0, 1)
    i, q = 0.6 * x[:, 0] - 0.27 * x[:, 1] - 0.32 * x[:, 2], 0.21 * x[:, 0] - 0.52 * x[:, 1] + 0.31 * x[:, 2]
    c, s = torch.cos(hue[:, 0] - 1), torch.sin(hue[:, 0] - 1)
    i, q = c * i - s * q, s * i + c * q
    y = grey[:, 0]
    return torch.stack([y + 0.956 * i + 0.62 * q, y - 0.27 * i - 0.65 * q, y - 1.1 * i + 1.7 * q], 1).clamp(
        0, 1
    )


def solarised(x: Tensor) -> Tensor:
    """Bytes of pictures posterised, solarised, with contrast stretched: [batch, 3, h, w] of uint8."""
    x = torch.where(x >= 160, 255 - x, x & 0xF0)
    low, high = x.amin((2, 3), keepdim=True).float(), x.amax((2, 3), keepdim=True).float()
    return ((x.float() - low) * (255 / (high - low).clamp(min=1))).round().clamp(0, 255).to(torch.uint8)


def cut_and_mixed(x: Tensor, box: Tensor) -> Tensor:
    """Pictures with a box of their neighbour in the batch: [batch, 3, h, w]."""
    at = torch.arange(x.shape[-1])
    low, high = box[:, :2], box[:, :2] + box[:, 2:]
    rows = (at >= low[:, :1]) & (at < high[:, :1])
    columns = (at >= low[:, 1:]) & (at < high[:, 1:])
    inside = rows[:, None, :, None] & columns[:, None, None, :]
    mean = torch.tensor([0.485, 0.456, 0.406], dtype=x.dtype)[:, None, None]
    return (torch.where(inside, x.flip(0), x) - mean) / 0.225


def multi_similarity(x: Tensor, label: Tensor) -> Tensor:
    """The loss of several similarities over all pairs of a batch: [batch, width]."""
    x = F.normalize(x, dim=-1)
    near, same = x @ x.T, label[:, None] == label
    pull = torch.where(same & (near < 0.99), torch.exp(-2 * (near - 0.5)), 0.0).sum(1)
    push = torch.where(~same, torch.exp(20 * (near - 0.5)), 0.0).sum(1)
    return (torch.log1p(pull) / 2 + torch.log1p(push) / 20).mean()


def supervised_contrast(x: Tensor, label: Tensor) -> Tensor:
    """The mean likelihood of examples of the same class among all others: [batch, width]."""
    x = F.normalize(x, dim=-1)
    scores = x @ x.T / 0.1
    eye = torch.eye(x.shape[0], dtype=torch.bool)
    same = (label[:, None] == label) & ~eye
    scores = scores - scores.amax(-1, keepdim=True).detach()
    chance = scores - torch.log((scores.exp() * ~eye).sum(-1, keepdim=True))
    return -((same * chance).sum(-1) / same.sum(-1).clamp(min=1)).mean()


def to_centres(x: Tensor, centres: Tensor, label: Tensor) -> Tensor:
    """Squared distances to the centre of the own class, and a margin to the nearest other one."""
    apart = (x * x).sum(-1, keepdim=True) - 2 * x @ centres.T + (centres * centres).sum(-1)
    own = (x - centres[label]).pow(2).sum(-1)
    other = apart.masked_fill(F.one_hot(label, centres.shape[0]).bool(), 1e4).amin(-1)
    return (own + F.relu(own - other + 1)).mean()


def life(alive: Tensor) -> Tensor:
    """Two generations of Conway's game on a torus, of booleans."""
    for _ in range(2):
        near = sum(
            alive.roll((a, b), (1, 2)).to(torch.int8) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b
        )
        alive = (near == 3) | (alive & (near == 2))
    return alive


def min_hashes(tokens: Tensor, factor: Tensor) -> Tensor:
    """Smallest hashes of a document's shingles under 16 functions: [documents, tokens]."""
    pairs = tokens[:, 1:] * 31_337 + tokens[:, :-1]
    mixed = (pairs ^ (pairs >> 7)) & 0xFFFFFF
    return ((mixed[:, None] * factor[:, None] + 12_345) % 1_000_003).amin(-1)


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "preconditioned step": (preconditioned, _of((16, 4, 128, 128), (16, 4, 128, 128), (16,)), True),
    "logit normal times": (logit_normal, _of(*[(32, 256, 128)] * 3, (32,)), True),
    "packed weights": (
        packed_weights,
        lambda: [
            torch.randn(16, 1024),
            torch.randint(-(2**31), 2**31, (128, 1024)).int(),
            torch.randint(-(2**31), 2**31, (8, 128)).int(),
            torch.rand(8, 1024),
        ],
        False,
    ),
    "micro scaled": (micro_scaled, _of((1024, 1024)), False),
    "learned step": (learned_step, _of((256, 2304), (256,)), True),
    "bytes by row": (
        row_bytes,
        lambda: [t.half() for t in _of((1024, 1024), (1024, 1024), (1024,))()],
        False,
    ),
    "trained bend": (trained_bend, lambda: [t.bfloat16() for t in _of((1024, 1024), (), ())()], True),
    "evolved norm": (evolved_norm, _of((8, 64, 40, 40), (64,), (64,), (64,)), True),
    "filter response": (filter_response, _of((8, 64, 64, 64), (64,), (64,), (64,)), True),
    "axial rotary": (axial_rotary, _of((4, 8, 24, 24, 64), (24, 1), (24, 1)), True),
    "picture positions": (picture_positions, lambda: [torch.rand(4, 48, 48) < 0.9], False),
    "random features": (random_features, _of(*[(4, 8, 256, 32)] * 3, (32, 64)), True),
    "weighted keys": (weighted_keys, _of((64, 16, 512), (64, 16, 512), (512,), (512,)), True),
    "balanced experts": (balanced_experts, _of((16_384, 32)), True),
    "capacity": (capacity, lambda: [torch.randint(32, (4096, 2)), torch.rand(4096, 2)], False),
    "labels with blanks": (
        ctc,
        lambda: [torch.randn(16, 128, 40), torch.randint(1, 40, (128, 8))],
        True,
    ),
    "penalised entropy": (
        penalised_entropy,
        lambda: [torch.randn(512, 4000), torch.randint(-200, 4000, (512,))],
        True,
    ),
    "lovasz": (lovasz, lambda: [torch.randn(8, 16_384), (torch.rand(8, 16_384) < 0.3).float()], True),
    "centre lines": (centre_lines, _of((4, 1, 160, 160)), True),
    "jittered colours": (jittered, lambda: [torch.rand(8, 3, 128, 128), torch.rand(8, 4)], True),
    "solarised": (solarised, lambda: [torch.randint(256, (16, 3, 224, 224), dtype=torch.uint8)], False),
    "cut and mixed": (
        cut_and_mixed,
        lambda: [torch.randn(16, 3, 128, 128), torch.randint(64, (16, 4))],
        True,
    ),
    "several similarities": (
        multi_similarity,
        lambda: [torch.randn(512, 128), torch.randint(64, (512,))],
        True,
    ),
    "supervised contrast": (
        supervised_contrast,
        lambda: [torch.randn(512, 128), torch.randint(64, (512,))],
        True,
    ),
    "to centres": (
        to_centres,
        lambda: [torch.randn(4096, 64), torch.randn(100, 64), torch.randint(100, (4096,))],
        True,
    ),
    "life": (life, lambda: [torch.rand(16, 256, 256) < 0.4], False),
    "smallest hashes": (
        min_hashes,
        lambda: [torch.randint(50_000, (256, 257)), torch.randint(1, 1_000_003, (16,))],
        False,
    ),
}
