"""Functions of the twelfth list along sequences: scans, attention, positions, sound."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def masked_running_sums(x: Tensor, mask: Tensor) -> Tensor:
    """Running sums of the chosen elements of rows: [n, 4000], bools of the same shape."""
    return (x * mask).cumsum(1)


def running_products(x: Tensor) -> Tensor:
    """Running products along rows: [n, k]."""
    return torch.cumprod(1 + 0.01 * x, -1)


def sums_from_the_right(x: Tensor) -> Tensor:
    """Sums from each element to the row's end: [n, k]."""
    return x.flip(-1).cumsum(-1).flip(-1)


def sums_before(x: Tensor) -> Tensor:
    """Sums of the elements before each one: [n, k]."""
    return torch.cat([torch.zeros_like(x[:, :1]), x], 1)[:, :-1].cumsum(1)


def high_water(x: Tensor) -> Tensor:
    """Falls from the highest value so far: [paths, time]."""
    return 1 - x / x.cummax(-1).values


def log_scan(a: Tensor, x: Tensor) -> Tensor:
    """A linear recurrence in logarithms: gates and values of [batch, time, k]."""
    gate = F.logsigmoid(a).cumsum(1)
    return torch.exp(gate + torch.logcumsumexp(x - gate, 1))


def decays_of_chunks(a: Tensor) -> Tensor:
    """Decays between all steps of a chunk: [batch, heads, chunks, steps] to [..., steps, steps]."""
    s = a.cumsum(-1)
    steps = a.shape[-1]
    lower = torch.ones(steps, steps, dtype=torch.bool).tril()
    return torch.exp((s[..., :, None] - s[..., None, :]).masked_fill(~lower, -torch.inf))


def packed_rotary(qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotated queries and keys beside values, in bf16: [batch, time, 3, heads, k], [time, k / 2] twice."""
    q, k, v = qkv.unbind(2)
    c, s = cos[:, None], sin[:, None]

    def turned(t: Tensor) -> Tensor:
        a, b = t.float().chunk(2, -1)
        return torch.cat([a * c - b * s, b * c + a * s], -1).to(t.dtype)

    return torch.stack([turned(q), turned(k), v], 2)


def relative_shift(content: Tensor, place: Tensor) -> Tensor:
    """Softmax of scores plus shifted scores of relative places: [batch, heads, t, t] twice."""
    b, h, t, _ = place.shape
    moved = F.pad(place, (1, 0)).view(b, h, t + 1, t)[:, :, 1:].reshape(b, h, t, t)
    return torch.softmax((content + moved) * 0.125, -1)


def normed_residual(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """RMS norm in f32 of a sum in bf16: [tokens, k] twice, [k]."""
    h = (x + y).float()
    return (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def normed_heads(q: Tensor, k: Tensor, w: Tensor) -> Tensor:
    """Scores of queries and keys that are layer-normed by head: [batch, time, heads, k] twice, [2, k]."""
    q, k = (F.layer_norm(t, w[0].shape, s).transpose(1, 2) for t, s in zip((q, k), w, strict=True))
    return q @ k.mT


def attentive_pooling(x: Tensor, w: Tensor, length: Tensor) -> Tensor:
    """Means and spreads over time by attention: [batch, k, time], [k, k], [batch]."""
    inside = torch.arange(x.shape[2]) < length[:, None, None]
    score = (w @ torch.tanh(x)).masked_fill(~inside, -1e4)
    p = torch.softmax(score, -1)
    mean = (p * x).sum(-1)
    spread = ((p * x.square()).sum(-1) - mean.square()).clamp(min=1e-4).sqrt()
    return torch.cat([mean, spread], 1)


def accepted_draft(p: Tensor, q: Tensor, token: Tensor, luck: Tensor) -> Tensor:
    """Number of drafted tokens to keep: logits [n, steps, words] twice, [n, steps] twice."""
    p, q = (torch.softmax(t, -1).gather(-1, token[..., None]).squeeze(-1) for t in (p, q))
    return (luck < p / q).to(torch.int64).cumprod(-1).sum(-1)


def least_likely_cut(x: Tensor, heat: Tensor) -> Tensor:
    """Chances of words of at least a tenth of the best one's: [n, words], [n]."""
    x = x / heat[:, None]
    p = torch.softmax(x, -1)
    return torch.softmax(x.masked_fill(p < 0.1 * p.amax(-1, keepdim=True), -torch.inf), -1)


def masked_spectra(x: Tensor, start: Tensor, width: Tensor) -> Tensor:
    """Spectra with a band and a span of time set to their mean: [n, mel, time], [n, 2] twice."""
    place = [torch.arange(size) for size in x.shape[1:]]
    band, span = (
        (p >= start[:, i : i + 1]) & (p < (start + width)[:, i : i + 1]) for i, p in enumerate(place)
    )
    hidden = band[:, :, None] | span[:, None]
    return torch.where(hidden, x.mean((1, 2), keepdim=True), x)


def sliding_normalisation(x: Tensor) -> Tensor:
    """Features less their mean over 101 frames: [n, mel, time]."""
    total = F.pad(x, (51, 50), mode="replicate").cumsum(-1)
    return x - (total[..., 101:] - total[..., :-101]) / 101


def lags(x: Tensor) -> Tensor:
    """Normalised cross correlation of frames with 40 lags: [n, time]."""
    frame = x.unfold(1, 160, 80)
    first = frame[..., :120]
    moved = torch.stack([frame[..., i : i + 120] for i in range(40)], -2)
    top = (first[..., None, :] * moved).sum(-1)
    return top * torch.rsqrt(first.square().sum(-1, keepdim=True) * moved.square().sum(-1) + 1e-6)


def sparse_maximum(x: Tensor) -> Tensor:
    """Projection of rows on the simplex: [n, k]."""
    high = x.sort(-1, descending=True).values
    total = high.cumsum(-1) - 1
    place = torch.arange(1, x.shape[-1] + 1)
    kept = (high * place > total).sum(-1, keepdim=True)
    return (x - total.gather(-1, kept - 1) / kept).clamp(min=0)


def merged_tokens(x: Tensor, key: Tensor) -> Tensor:
    """Each even token averaged into its closest odd one: [n, time, k] twice."""
    key = F.normalize(key, dim=-1)
    a, b = key[:, ::2], key[:, 1::2]
    at = (a @ b.mT).argmax(-1)
    even, odd = x[:, ::2], x[:, 1::2]
    total = odd.scatter_add(1, at[..., None].expand_as(even), even)
    count = torch.ones_like(odd[..., 0]).scatter_add(1, at, torch.ones_like(even[..., 0]))
    return total / count[..., None]


def _pieces() -> list[Tensor]:
    return [torch.randn(64, 80, 200), torch.randint(60, (64, 2)), torch.randint(20, (64, 2))]


def _drafts() -> list[Tensor]:
    return [*torch.randn(2, 32, 5, 2000), torch.randint(2000, (32, 5)), torch.rand(32, 5)]


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "masked running sums": (
        masked_running_sums,
        lambda: [torch.randn(128, 4000), torch.rand(128, 4000) < 0.5],
        True,
    ),
    "running products": (running_products, _of((500, 1000)), True),
    "sums from the right": (sums_from_the_right, _of((128, 4000)), True),
    "sums before": (sums_before, _of((128, 4001)), True),
    "high water": (high_water, lambda: [torch.rand(1000, 252) + 1], True),
    "log scan": (log_scan, _of((8, 256, 128), (8, 256, 128)), True),
    "decays of chunks": (decays_of_chunks, lambda: [-torch.rand(4, 16, 8, 64)], True),
    "packed rotary": (
        packed_rotary,
        lambda: [torch.randn(4, 256, 3, 8, 64).bfloat16(), *torch.randn(2, 256, 32)],
        True,
    ),
    "relative shift": (relative_shift, _of((4, 8, 150, 150), (4, 8, 150, 150)), True),
    "normed residual": (
        normed_residual,
        lambda: [t.bfloat16() for t in _of((1024, 1024), (1024, 1024), (1024,))()],
        True,
    ),
    "normed heads": (normed_heads, _of((4, 130, 8, 48), (4, 130, 8, 48), (2, 48)), True),
    "attentive pooling": (
        attentive_pooling,
        lambda: [*_of((16, 192, 201), (192, 192))(), torch.randint(50, 201, (16,))],
        True,
    ),
    "accepted draft": (accepted_draft, _drafts, False),
    "least likely cut": (
        least_likely_cut,
        lambda: [3 * torch.randn(100, 5000), torch.rand(100) + 0.5],
        False,
    ),
    "masked spectra": (masked_spectra, _pieces, True),
    "sliding normalisation": (sliding_normalisation, _of((16, 80, 400)), True),
    "lags": (lags, _of((16, 8000)), True),
    "sparse maximum": (sparse_maximum, _of((2000, 48)), True),
    "merged tokens": (merged_tokens, _of((8, 196, 128), (8, 196, 64)), True),
}
