"""Functions of the thirteenth list over rows, sets, graphs and tables: statistics, features, codes."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def two_towers(user: Tensor, item: Tensor, popular: Tensor, ids: Tensor) -> Tensor:
    """Softmax within a batch, less log popularities, without equal items: [n, k] twice, [n] twice."""
    s = user @ item.T / 0.1 - popular
    equal = (ids[:, None] == ids) & ~torch.eye(len(ids), dtype=torch.bool)
    s = s.masked_fill(equal, -1e9)
    return -torch.log_softmax(s, 1).diagonal().mean()


def field_aware(x: Tensor) -> Tensor:
    """Products of field-aware embeddings of all pairs: [n, fields, fields, k]."""
    dots = (x * x.transpose(1, 2)).sum(-1)
    above = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    return (dots * above).sum((1, 2))


def sessions(time: Tensor) -> Tensor:
    """Numbers of visits, which end at pauses of half an hour, and places in them: [users, events]."""
    new = F.pad(time.diff(dim=1) > 1800, (1, 0), value=True)
    number = new.long().cumsum(1)
    at = torch.arange(time.shape[1])
    start = torch.where(new, at, 0).cummax(1).values
    return torch.stack([number, at - start])


def winsorised(x: Tensor) -> Tensor:
    """Rows cut at their fifth and 95th percentile, standardised: [n, k]."""
    s = x.sort(1).values
    k = x.shape[1]
    y = torch.minimum(torch.maximum(x, s[:, k // 20, None]), s[:, k - 1 - k // 20, None])
    return (y - y.mean(1, keepdim=True)) / (y.std(1, keepdim=True) + 1e-6)


def rank_correlation(x: Tensor, y: Tensor) -> Tensor:
    """Spearman's correlation of rows: [n, k] twice."""
    a, b = (t.argsort(1).argsort(1).to(x.dtype) for t in (x, y))
    n = x.shape[1]
    return 1 - 6 * (a - b).square().sum(1) / (n * (n * n - 1))


def graph_norm(x: Tensor, graph: Tensor, w: Tensor, b: Tensor, share: Tensor) -> Tensor:
    """Nodes standardised within their graph, with a learned share of the mean: [n, k], [n], [k] thrice."""
    count = torch.zeros(128, dtype=x.dtype).index_add(0, graph, torch.ones(len(x), dtype=x.dtype))
    count = count.clamp(min=1)[:, None]
    mean = torch.zeros(128, x.shape[1], dtype=x.dtype).index_add(0, graph, x) / count
    off = x - share * mean[graph]
    var = torch.zeros_like(mean).index_add(0, graph, off.square()) / count
    return w * off * torch.rsqrt(var + 1e-5)[graph] + b


def edit_distances(a: Tensor, b: Tensor) -> Tensor:
    """Edit distances of words of 16 letters to words of 20, row by row: [n, 16], [n, 20] of ints."""
    at = torch.arange(21)
    row = at.expand(len(a), 21)
    for i in range(16):
        change = (a[:, i, None] != b).long()
        best = torch.minimum(row[:, 1:] + 1, row[:, :-1] + change)
        best = F.pad(best, (1, 0), value=i + 1)
        row = (best - at).cummin(1).values + at
    return row[:, -1]


def bloom_filter(key: Tensor, table: Tensor) -> Tensor:
    """Which keys may be in a set, by four hashes: [n], [2 ** 16 bits / 32] of ints."""
    found = torch.ones_like(key, dtype=torch.bool)
    for i in range(4):
        h = (key * (2654435761 + 40_503 * i) ^ (key >> (7 + i))) & 0xFFFF
        found = found & (((table[h >> 5] >> (h & 31)) & 1) == 1)
    return found


def shifted_noise(state: Tensor) -> Tensor:
    """Uniform numbers and new states by four rounds of xorshift: [n] of int32."""
    for _ in range(4):
        state = state ^ (state << 13)
        state = state ^ ((state >> 17) & 0x7FFF)
        state = state ^ (state << 5)
    return (state & 0xFFFFFF).float() / 2**24


def looked_up_curve(x: Tensor, at: Tensor, value: Tensor) -> Tensor:
    """Piecewise linear curve by search: [n, k], sorted [knots], [knots]."""
    i = torch.searchsorted(at, x).clamp(1, len(at) - 1)
    t = ((x - at[i - 1]) / (at[i] - at[i - 1])).clamp(0, 1)
    return value[i - 1] + t * (value[i] - value[i - 1])


def monotone_cubic(y: Tensor, t: Tensor) -> Tensor:
    """Monotone cubics through rows of equal steps, at one place in each step, in f64: [n, k], [k - 1]."""
    y = y.double()
    d = y.diff(dim=1)
    same = d[:, 1:] * d[:, :-1] > 0
    sum_ = torch.where(same, d[:, 1:] + d[:, :-1], 1.0)
    m = torch.where(same, 2 * d[:, 1:] * d[:, :-1] / sum_, 0.0)
    m = torch.cat([d[:, :1], m, d[:, -1:]], 1)
    t2 = t * t
    t3 = t2 * t
    left = (2 * t3 - 3 * t2 + 1) * y[:, :-1] + (t3 - 2 * t2 + t) * m[:, :-1]
    return left + (3 * t2 - 2 * t3) * y[:, 1:] + (t3 - t2) * m[:, 1:]


def mixture_likelihood(x: Tensor, mean: Tensor, log: Tensor, weight: Tensor) -> Tensor:
    """Likelihood of diagonal mixtures in f64: [n, d], [k, d] twice, [k]."""
    x = x.double()
    z = (x[:, None] - mean) * torch.exp(-log)
    part = -0.5 * z.square().sum(-1) - log.sum(-1) + torch.log_softmax(weight, 0)
    return torch.logsumexp(part, 1)


def shrunk_covariance(x: Tensor) -> Tensor:
    """Covariances of batches of samples, shrunk towards a multiple of one: [batch, n, k]."""
    n, k = x.shape[1:]
    x = x - x.mean(1, keepdim=True)
    s = x.transpose(1, 2) @ x / n
    trace = s.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
    size = s.square().sum((1, 2), keepdim=True)
    share = (size + trace.square() * k * k) / ((n + 1) * (size - trace.square() * k).clamp(min=1e-6))
    share = share.clamp(max=1)
    return (1 - share) * s + share * trace * torch.eye(k, dtype=x.dtype)


def robust_location(x: Tensor) -> Tensor:
    """Locations of rows by five rounds of reweighting: [n, k]."""
    m = x.mean(1, keepdim=True)
    for _ in range(5):
        w = 1.345 / (x - m).abs().clamp(min=1.345)
        m = (w * x).sum(1, keepdim=True) / w.sum(1, keepdim=True)
    return m.squeeze(1)


def drawn_means(x: Tensor, at: Tensor) -> Tensor:
    """Means and deviations of samples drawn with replacement: [n], [draws, n]."""
    y = x[at]
    return torch.stack([y.mean(1), y.std(1)])


def circle_density(x: Tensor, mean: Tensor, k: Tensor) -> Tensor:
    """Log density of angles around a mean (von Mises): [n, k], [k] twice."""
    k = F.softplus(k)
    return k * (torch.cos(x - mean) - 1) - math.log(2 * math.pi) - torch.log(torch.special.i0e(k))


def gaussian_ranks(x: Tensor) -> Tensor:
    """Rows as normal quantiles of their ranks: [n, k]."""
    rank = x.argsort(1).argsort(1).to(x.dtype)
    return math.sqrt(2) * torch.erfinv(2 * (rank + 0.5) / x.shape[1] - 1)


def largest_gap(x: Tensor, y: Tensor) -> Tensor:
    """Kolmogorov's and Smirnov's distance of the samples in rows: [n, k], [n, m]."""
    both = torch.cat([x, y], 1)
    order = both.argsort(1)
    step = torch.where(order < x.shape[1], 1 / x.shape[1], -1 / y.shape[1])
    return step.cumsum(1).abs().amax(1)


def table_features(x: Tensor, known: Tensor, mean: Tensor, w: Tensor) -> Tensor:
    """Missing values filled, their flags beside them, scaled logs: [n, k], bools [n, k], [k], [2 k]."""
    filled = torch.where(known, x, mean)
    wide = torch.cat([filled.sign() * torch.log1p(filled.abs()), known.to(x.dtype)], 1)
    return wide * w


def user_histories(table: Tensor, ids: Tensor, age: Tensor) -> Tensor:
    """Embeddings of visits, mean and maximum over those that are known: [words, k], [n, past] twice."""
    e = table[ids]
    known = (ids > 0)[..., None]
    w = torch.exp(-0.1 * age)[..., None] * known
    mean = (e * w).sum(1) / w.sum(1).clamp(min=1e-6)
    most = e.masked_fill(~known, float("-inf")).amax(1)
    return torch.cat([mean, torch.where(torch.isinf(most), 0.0, most)], 1)


def segment_softmax(x: Tensor, at: Tensor, value: Tensor) -> Tensor:
    """Values weighted by a softmax within segments of 500: [n], [n] sorted, [n, k]."""
    most = torch.full((500,), float("-inf"), dtype=x.dtype).scatter_reduce(0, at, x, "amax")
    e = torch.exp(x - most[at])
    total = torch.zeros(500, dtype=x.dtype).index_add(0, at, e)
    out = torch.zeros(500, value.shape[1], dtype=x.dtype)
    return out.index_add(0, at, value * (e / total[at])[:, None])


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "two towers": (
        two_towers,
        lambda: [*torch.randn(2, 600, 64), torch.randn(600), torch.randint(500, (600,))],
        True,
    ),
    "field-aware pairs": (field_aware, _of((200, 20, 20, 8)), True),
    "sessions": (sessions, lambda: [torch.randint(3000, (500, 300)).cumsum(1)], False),
    "winsorised": (winsorised, _of((600, 200)), True),
    "rank correlation": (rank_correlation, _of((300, 200), (300, 200)), False),
    "graph norm": (
        graph_norm,
        lambda: [
            *(torch.randn(6000, 64), torch.randint(128, (6000,)).sort().values),
            *_of((64,), (64,), (64,))(),
        ],
        True,
    ),
    "edit distances": (
        edit_distances,
        lambda: [torch.randint(6, (2000, 16)), torch.randint(6, (2000, 20))],
        False,
    ),
    "bloom filter": (
        bloom_filter,
        lambda: [torch.randint(2**40, (200_000,)), torch.randint(2**32, (2048,))],
        False,
    ),
    "shifted noise": (
        shifted_noise,
        lambda: [torch.randint(1, 2**31 - 1, (1_000_003,), dtype=torch.int32)],
        False,
    ),
    "looked-up curve": (
        looked_up_curve,
        lambda: [torch.randn(300, 301), torch.linspace(-3, 3, 40) ** 3 / 9, torch.randn(40)],
        True,
    ),
    "monotone cubic": (monotone_cubic, lambda: [torch.randn(500, 257), torch.rand(256)], True),
    "likelihood of a mixture": (mixture_likelihood, _of((2000, 16), (24, 16), (24, 16), (24,)), True),
    "shrunk covariance": (shrunk_covariance, _of((160, 60, 50)), True),
    "robust location": (robust_location, _of((1000, 333)), True),
    "drawn means": (drawn_means, lambda: [torch.randn(1000), torch.randint(1000, (500, 1000))], True),
    "circle density": (circle_density, _of((3000, 100), (100,), (100,)), True),
    "gaussian ranks": (gaussian_ranks, _of((400, 300)), False),
    "largest gap": (largest_gap, _of((300, 200), (300, 150)), False),
    "table features": (
        table_features,
        lambda: [torch.randn(5000, 39), torch.rand(5000, 39) < 0.8, torch.randn(39), torch.randn(78)],
        True,
    ),
    "user histories": (
        user_histories,
        lambda: [torch.randn(3000, 32), torch.randint(3000, (200, 50)), 20 * torch.rand(200, 50)],
        True,
    ),
    "segment softmax": (
        segment_softmax,
        lambda: [torch.randn(20_000), torch.randint(500, (20_000,)).sort().values, torch.randn(20_000, 24)],
        True,
    ),
}
