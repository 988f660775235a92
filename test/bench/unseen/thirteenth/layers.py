"""Functions of the thirteenth list from neural networks: attention, losses, quantisation, optimizers."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def stick_breaking(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention that breaks a stick from the nearest key on: [batch, heads, time, k] each."""
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    earlier = torch.ones(s.shape[-2:], dtype=torch.bool).tril(-1)
    rest = F.logsigmoid(-s).masked_fill(~earlier, 0.0)
    after = rest.flip(-1).cumsum(-1).flip(-1) - rest
    return (F.logsigmoid(s) + after).exp().masked_fill(~earlier, 0.0) @ v


def chosen_blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Each query attends to its best four blocks of 16 keys: [heads, queries, k], [heads, keys, k] twice."""
    heads, n, width = k.shape
    blocks = k.view(heads, n // 16, 16, width)
    best = (q @ blocks.mean(2).transpose(1, 2)).topk(4, -1).indices
    head = torch.arange(heads)[:, None, None]
    keys, values = blocks[head, best].flatten(2, 3), v.view_as(blocks)[head, best].flatten(2, 3)
    p = torch.softmax((q[:, :, None] * keys).sum(-1) / math.sqrt(width), -1)
    return (p[..., None] * values).sum(2)


def retention(q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
    """Retention with a decay by head, normed: [batch, heads, time, k] each, [heads]."""
    at = torch.arange(q.shape[2])
    far = at[:, None] - at
    d = torch.where(far >= 0, torch.exp(F.logsigmoid(decay)[:, None, None] * far.clamp(min=0)), 0.0)
    s = q @ k.transpose(-1, -2) * (d / d.sum(-1, keepdim=True).sqrt())
    y = (s / s.abs().sum(-1, keepdim=True).clamp(min=1)) @ v
    return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)


def taylor_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention whose exponential is its series of second order: [batch, heads, time, k]."""
    s = q @ k.transpose(-1, -2) / q.shape[-1]
    p = (1 + s + 0.5 * s.square()).tril()
    return (p @ v) / p.sum(-1, keepdim=True)


def quantised_cache(q: Tensor, k: Tensor, v: Tensor, scale: Tensor, length: Tensor) -> Tensor:
    """One token over caches of int8: [n, heads, k], [n, heads, time, k] twice, [2, n, heads, time], [n]."""
    keys = k.to(q.dtype) * scale[0, ..., None]
    s = (q[:, :, None] * keys).sum(-1) / math.sqrt(q.shape[-1])
    s = s.masked_fill(torch.arange(k.shape[2]) >= length[:, None, None], -1e9)
    return (torch.softmax(s, -1)[..., None] * (v.to(q.dtype) * scale[1, ..., None])).sum(2)


def keys_with_padding(q: Tensor, k: Tensor, v: Tensor, padded: Tensor) -> Tensor:
    """Cross attention in bf16 with padded keys, [batch, time, heads, k] handed over: four tensors."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    s = (q @ k.transpose(-1, -2)).float() * 0.125
    p = torch.softmax(s.masked_fill(padded[:, None, None], float("-inf")), -1)
    return (p.to(v.dtype) @ v).transpose(1, 2).flatten(2)


def entmax(x: Tensor) -> Tensor:
    """Rows as sparse distributions with exponent 1.5: [n, k]."""
    x = (x - x.amax(-1, keepdim=True)) / 2
    z = x.sort(-1, descending=True).values
    rank = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    mean, square = z.cumsum(-1) / rank, z.square().cumsum(-1) / rank
    delta = (1 - rank * (square - mean.square())) / rank
    tau = mean - delta.clamp(min=0).sqrt()
    size = (tau <= z).sum(-1, keepdim=True)
    return (x - tau.gather(-1, size - 1)).clamp(min=0).square()


def soft_experts(x: Tensor, slots: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """A soft mixture of experts: [n, time, k], [k, e, s], [e, k, h], [e, h, k]."""
    logits = torch.einsum("ntk,kes->ntes", x, slots)
    into = torch.einsum("ntes,ntk->nesk", torch.softmax(logits, 1), x)
    y = F.gelu(into.transpose(0, 1).flatten(1, 2) @ up) @ down
    y = y.view(up.shape[0], len(x), -1, x.shape[-1]).transpose(0, 1)
    share = torch.softmax(logits.flatten(2), -1).view_as(logits)
    return torch.einsum("ntes,nesk->ntk", share, y)


def adapters_by_example(x: Tensor, a: Tensor, b: Tensor, which: Tensor) -> Tensor:
    """Each example's own low-rank change: [n, time, k], [adapters, k, r], [adapters, r, k], [n]."""
    return x + 0.5 * ((x @ a[which]) @ b[which])


def odds_of_answers(chosen: Tensor, refused: Tensor, mask: Tensor) -> Tensor:
    """Odds-ratio loss of mean log chances: three of [n, time]."""
    count = mask.sum(1)
    a, b = ((t * mask).sum(1) / count for t in (chosen, refused))
    odds = (a - b) - (torch.log1p(-a.exp()) - torch.log1p(-b.exp()))
    return (-a - 0.1 * F.logsigmoid(odds)).mean()


def queue_of_keys(q: Tensor, k: Tensor, queue: Tensor) -> Tensor:
    """Contrastive loss against a queue of old keys: [n, k] twice, [queue, k]."""
    q, k = F.normalize(q, dim=1), F.normalize(k, dim=1)
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / 0.07
    return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))


def proxies(x: Tensor, proxy: Tensor, label: Tensor) -> Tensor:
    """Proxy anchor loss: [n, k], [classes, k], [n]."""
    s = F.normalize(x, dim=1) @ F.normalize(proxy, dim=1).T
    same = F.one_hot(label, len(proxy)).bool()
    near = torch.where(same, torch.exp(-32 * (s - 0.1)), 0.0).sum(0)
    far = torch.where(same, 0.0, torch.exp(32 * (s + 0.1))).sum(0)
    return torch.log1p(near).sum() / same.any(0).sum() + torch.log1p(far).mean()


def evidential(x: Tensor, y: Tensor) -> Tensor:
    """Likelihood of an evidential regression with its penalty: [n, 4], [n]."""
    gamma, nu, alpha, beta = x.unbind(1)
    nu, beta = F.softplus(nu) + 1e-3, F.softplus(beta) + 1e-3
    alpha = F.softplus(alpha) + 1
    omega = 2 * beta * (1 + nu)
    off = y - gamma
    loss = 0.5 * torch.log(math.pi / nu) - alpha * omega.log()
    loss = loss + (alpha + 0.5) * torch.log(off.square() * nu + omega)
    loss = loss + torch.lgamma(alpha) - torch.lgamma(alpha + 0.5)
    return (loss + 0.01 * off.abs() * (2 * nu + alpha)).mean()


def ranked_ensembles(x: Tensor, y: Tensor) -> Tensor:
    """Ranked probability score of ensembles of 16, all pairs: [16, n], [n]."""
    spread = (x[:, None] - x).abs().mean((0, 1))
    return ((x - y).abs().mean(0) - 0.5 * spread).mean()


def adjusted_logits(x: Tensor, label: Tensor) -> Tensor:
    """Cross entropy with logits shifted by the classes' frequencies: [n, classes], [n]."""
    count = torch.zeros(x.shape[1], dtype=x.dtype).index_add(0, label, torch.ones(len(x), dtype=x.dtype))
    prior = torch.log((count + 1) / (count + 1).sum())
    return F.cross_entropy(x + prior, label, label_smoothing=0.05)


def stochastic_bfloat(x: Tensor, noise: Tensor) -> Tensor:
    """Floats rounded to bf16 by chance, by their bits: [n, k], [n, k] of ints."""
    bits = x.float().view(torch.int32)
    return ((bits + (noise & 0xFFFF)) & -0x10000).view(torch.float32).to(torch.bfloat16)


def packed_pairs(x: Tensor) -> Tensor:
    """Four codes of two bits in each byte: [n, k]."""
    size = x.abs().mean(1, keepdim=True) * 1.5
    code = ((x / size).round().clamp(-1, 2) + 1).to(torch.uint8).unflatten(1, (-1, 4))
    return code[..., 0] | (code[..., 1] << 2) | (code[..., 2] << 4) | (code[..., 3] << 6)


def product_codes(x: Tensor, book: Tensor) -> Tensor:
    """Nearest of 16 codes for each of eight parts of rows: [n, 8 w], [8, 16, w]."""
    part = x.view(len(x), 8, 1, -1)
    best = (part - book).square().sum(-1).argmin(-1)
    return book[torch.arange(8), best].flatten(1)


def outlier_columns(x: Tensor, w: Tensor) -> Tensor:
    """A product in int8 steps by row, columns with outliers kept apart: [n, k], [m, k]."""
    large = x.abs().amax(0) > 3.4
    inner = x.masked_fill(large, 0.0)
    sx = inner.abs().amax(1, keepdim=True) / 127
    sw = w.abs().amax(1, keepdim=True) / 127
    y = ((inner / sx).round() @ (w / sw).round().T) * (sx * sw.T)
    return y + (x - inner) @ w.T


def series_patches(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Series normalised by row, cut into patches that overlap, embedded: [n, c, time], [16, k], [k]."""
    mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True, unbiased=False) + 1e-5
    patch = F.pad((x - mean) / std, (0, 8), mode="replicate").unfold(-1, 16, 8)
    return F.gelu(patch @ w + b)


def adan(p: Tensor, g: Tensor, last: Tensor, m: Tensor, d: Tensor, v: Tensor) -> Tensor:
    """A step of adaptive Nesterov momentum: six of [n, k]."""
    change = g - last
    m, d = torch.lerp(m, g, 0.02), torch.lerp(d, change, 0.08)
    v = 0.99 * v + 0.01 * (g + 0.92 * change).square()
    return torch.stack([(p - 1e-3 * (m + 0.92 * d) / (v.sqrt() + 1e-8)) / (1 + 2e-5), m, d, v])


def half_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Layer norm in f16 with a scaled tanh: [n, k], [k] twice."""
    return torch.tanh(F.layer_norm(x, x.shape[-1:], w, b) * 0.5) * 2


def gated_scan(x: Tensor, gate: Tensor) -> Tensor:
    """A loop over 32 steps of an input-gated state, in bf16 with an f32 state: [32, n, k] twice."""
    state = torch.zeros(x.shape[1:])
    out: list[Tensor] = []
    for value, g in zip(x, gate, strict=True):
        a = torch.sigmoid(g.float())
        state = a * state + torch.sqrt(1 - a * a + 1e-6) * value.float()
        out.append(state.to(x.dtype))
    return torch.stack(out)


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "stick breaking attention": (stick_breaking, _of(*[(2, 4, 160, 32)] * 3), True),
    "chosen blocks": (chosen_blocks, _of((4, 96, 32), (4, 512, 32), (4, 512, 32)), True),
    "retention": (retention, _of(*[(2, 4, 192, 48)] * 3, (4,)), True),
    "taylor attention": (taylor_attention, _of(*[(2, 6, 200, 16)] * 3), True),
    "quantised cache": (
        quantised_cache,
        lambda: [
            *(torch.randn(4, 8, 64), *torch.randint(-127, 128, (2, 4, 8, 500, 64), dtype=torch.int8)),
            *(torch.rand(2, 4, 8, 500) / 64, torch.tensor([500, 321, 77, 400])),
        ],
        False,
    ),
    "padded keys": (
        keys_with_padding,
        lambda: [
            *(torch.randn(4, 100, 8, 64).bfloat16(), *torch.randn(2, 4, 177, 8, 64).bfloat16()),
            torch.arange(177) >= torch.tensor([[177], [100], [50], [160]]),
        ],
        True,
    ),
    "entmax": (entmax, _of((500, 256)), True),
    "soft experts": (soft_experts, _of((16, 200, 64), (64, 8, 4), (8, 64, 128), (8, 128, 64)), True),
    "adapters by example": (
        adapters_by_example,
        lambda: [*_of((64, 64, 256), (10, 256, 8), (10, 8, 256))(), torch.randint(10, (64,))],
        True,
    ),
    "odds of answers": (
        odds_of_answers,
        lambda: [*(-torch.rand(2, 2000, 700) - 0.1), (torch.rand(2000, 700) < 0.8).float()],
        True,
    ),
    "queue of keys": (
        queue_of_keys,
        lambda: [*torch.randn(2, 128, 64), F.normalize(torch.randn(4096, 64), dim=1)],
        True,
    ),
    "proxies": (proxies, lambda: [*_of((400, 64), (333, 64))(), torch.randint(333, (400,))], True),
    "evidential": (evidential, _of((30_000, 4), (30_000,)), True),
    "ranked ensembles": (ranked_ensembles, _of((16, 10_001), (10_001,)), True),
    "adjusted logits": (
        adjusted_logits,
        lambda: [torch.randn(2000, 365), torch.randint(365, (2000,))],
        True,
    ),
    "stochastic bfloat": (
        stochastic_bfloat,
        lambda: [torch.randn(2000, 701), torch.randint(2**31 - 1, (2000, 701), dtype=torch.int32)],
        False,
    ),
    "packed pairs": (packed_pairs, _of((800, 1024)), False),
    "product codes": (product_codes, _of((2000, 64), (8, 16, 8)), False),
    "outlier columns": (outlier_columns, _of((300, 512), (384, 512)), False),
    "series patches": (series_patches, _of((32, 7, 336), (16, 64), (64,)), True),
    "adan": (adan, lambda: [*torch.randn(5, 500, 500), torch.rand(500, 500)], False),
    "half norm": (half_norm, lambda: [t.half() for t in _of((700, 771), (771,), (771,))()], True),
    "gated scan": (gated_scan, lambda: [*torch.randn(2, 32, 64, 200).bfloat16()], True),
}
