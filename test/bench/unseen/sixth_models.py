"""Functions of the sixth list, third part: recent sequence models, updates of optimizers, losses."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def dynamic_tanh(x: Tensor, alpha: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.tanh(alpha * x) * w + b


def canon(x: Tensor, w: Tensor) -> Tensor:
    """The sum of a token and the three before it, weighted by channel, as a residual."""
    made = x
    for n in range(w.shape[0]):
        made = made + F.pad(x, (0, 0, n, 0))[:, : x.shape[1]] * w[n]
    return made


def min_gru(gate: Tensor, hidden: Tensor) -> Tensor:
    """The parallel form of a minimal GRU, in logarithms."""
    keep = -F.softplus(gate)
    new = -F.softplus(-gate) + torch.where(hidden > 0, (F.relu(hidden) + 0.5).log(), -F.softplus(-hidden))
    along = keep.cumsum(1)
    return torch.exp(along + torch.logcumsumexp(new - along, 1))


def decay_mask(x: Tensor, b: Tensor, c: Tensor, a: Tensor) -> Tensor:
    """Chunks of a state space dual: [batch, chunks, length, heads, width]."""
    along = a.cumsum(2).permute(0, 1, 3, 2)
    apart = along[..., :, None] - along[..., None, :]
    seen = torch.ones(apart.shape[-2:], dtype=torch.bool).tril()
    decay = torch.exp(apart.masked_fill(~seen, -math.inf))
    scores = (c @ b.mT)[:, :, None] * decay
    return (scores @ x.transpose(2, 3)).transpose(2, 3)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor) -> Tensor:
    """Steps of the gated delta rule: [batch, heads, time, width]."""
    k = F.normalize(k, dim=-1)
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    made = []
    for n in range(q.shape[2]):
        state = state * torch.sigmoid(decay[:, :, n])[..., None, None]
        held = (k[:, :, n, :, None] * state).sum(-2)
        new = torch.sigmoid(beta[:, :, n])[..., None] * (v[:, :, n] - held)
        state = state + k[:, :, n, :, None] * new[..., None, :]
        made.append((q[:, :, n, :, None] * state).sum(-2))
    return torch.stack(made, 2)


def matrix_memory(q: Tensor, k: Tensor, v: Tensor, i: Tensor, f: Tensor) -> Tensor:
    """The parallel form of an mLSTM with a stabilised exponential gate."""
    along = F.logsigmoid(f).cumsum(-1)
    gate = along[..., :, None] - along[..., None, :] + i[..., None, :]
    seen = torch.ones(gate.shape[-2:], dtype=torch.bool).tril()
    gate = gate.masked_fill(~seen, -math.inf)
    most = gate.amax(-1, keepdim=True)
    scores = (q @ k.mT) / math.sqrt(q.shape[-1]) * torch.exp(gate - most)
    norm = torch.maximum(scores.sum(-1, keepdim=True).abs(), torch.exp(-most))
    return (scores / (norm + 1e-6)) @ v


def forgetting_attention(q: Tensor, k: Tensor, v: Tensor, f: Tensor) -> Tensor:
    along = F.logsigmoid(f).cumsum(-1)
    scores = q @ k.mT / math.sqrt(q.shape[-1]) + along[..., :, None] - along[..., None, :]
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(mask, -math.inf), -1) @ v


def pooled_blocks(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """Attention to blocks of 16 keys that a learned weight compresses, those before the query's."""
    blocks = [(t.unflatten(2, (-1, 16)) * torch.softmax(w, 0)[:, None]).sum(3) for t in (k, v)]
    scores = q @ blocks[0].mT / 8
    late = torch.arange(blocks[0].shape[2])[None] * 16 + 15 >= torch.arange(q.shape[2])[:, None]
    share = torch.softmax(scores.masked_fill(late, -1e4), -1) * ~late
    return share @ blocks[1]


def joined_rotary(latent: Tensor, shared: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Keys of latent attention: a part without positions, and a rotated one that all heads share."""
    a, b = shared[..., 0::2], shared[..., 1::2]
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    heads = latent.unflatten(-1, (8, -1))
    both = torch.cat([heads, turned[:, :, None].expand(-1, -1, 8, -1)], -1)
    return both * torch.rsqrt(both.pow(2).mean(-1, keepdim=True) + 1e-6)


def grouped_router(x: Tensor, bias: Tensor) -> Tensor:
    """Weights of 8 experts of 64, from 4 of 8 groups."""
    score = torch.sigmoid(x)
    chosen = score + bias
    groups = chosen.unflatten(-1, (8, 8)).topk(2, -1).values.sum(-1)
    kept = torch.zeros_like(groups).scatter(1, groups.topk(4, -1).indices, 1.0)
    chosen = chosen.masked_fill(kept.repeat_interleave(8, 1) == 0, -math.inf)
    at = chosen.topk(8, -1).indices
    weight = score.gather(1, at)
    return torch.zeros_like(x).scatter(1, at, 2.5 * weight / weight.sum(-1, keepdim=True))


def hyper_connections(x: Tensor, y: Tensor, mix: Tensor, out: Tensor) -> Tensor:
    """Four residual streams that mix, and take a layer's result: [batch, time, 4, width]."""
    return torch.einsum("btiw,ij->btjw", x, torch.softmax(mix, 0)) + y[:, :, None] * torch.tanh(out)[:, None]


def shifted_lerps(x: Tensor, mu: Tensor) -> Tensor:
    """A token and the one before it, mixed in six ways."""
    before = F.pad(x, (0, 0, 1, -1))
    return x + (before - x) * mu[:, None, None]


def relu_squared_gated(x: Tensor, gate: Tensor, w: Tensor) -> Tensor:
    made = F.relu(gate) ** 2 * x
    return made * torch.rsqrt(made.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def stochastic_depth(x: Tensor, y: Tensor, scale: Tensor, keep: Tensor) -> Tensor:
    return F.layer_norm(x + y * scale * (keep[:, None, None] > 0) / 0.9, x.shape[-1:])


def adopt(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
    normed = (g / v.sqrt().clamp(min=1e-6)).clamp(-10, 10)
    m = 0.9 * m + 0.1 * normed
    return torch.stack([p - 1e-3 * m, m, 0.9999 * v + 0.0001 * g * g])


def cautious_adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
    m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
    step = m / (v.sqrt() + 1e-8)
    agree = (step * g > 0).to(p)
    return p - 1e-3 * step * agree / agree.mean().clamp(min=1e-3)


def sophia(p: Tensor, g: Tensor, m: Tensor, h: Tensor) -> Tensor:
    m = 0.96 * m + 0.04 * g
    ratio = (m.abs() / (0.05 * h.abs() + 1e-15)).clamp(max=1)
    return p * (1 - 1e-4) - 1e-3 * m.sign() * ratio


def row_normed(p: Tensor, g: Tensor, m: Tensor) -> Tensor:
    """An update of which each row and each column has the same norm, and one length in all."""
    m = 0.95 * m + g
    for _ in range(2):
        m = m / m.norm(dim=1, keepdim=True).clamp(min=1e-7)
        m = m / m.norm(dim=0, keepdim=True).clamp(min=1e-7)
    return p - 0.02 * math.sqrt(p.shape[0]) * m / m.norm()


def direct_preference(x: Tensor, y: Tensor, reference: Tensor) -> Tensor:
    """Pairs of answers, [pairs, 2, length, classes]."""
    likely = torch.log_softmax(x, -1).gather(-1, y[..., None])[..., 0]
    total = (likely * (y != 0)).sum(-1) - reference
    return -F.logsigmoid(0.1 * (total[:, 0] - total[:, 1])).mean()


def clipped_policy(new: Tensor, old: Tensor, reference: Tensor, reward: Tensor, mask: Tensor) -> Tensor:
    """Group-relative policy optimisation: [groups, answers, tokens]."""
    gain = (reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)
    ratio = torch.exp(new - old)
    least = torch.minimum(ratio * gain[..., None], ratio.clamp(0.8, 1.2) * gain[..., None])
    drift = torch.exp(reference - new) - (reference - new) - 1
    alive = mask > -1
    return -(((least - 0.04 * drift) * alive).sum(-1) / alive.sum(-1).clamp(min=1)).mean()


def sigmoid_pairs(x: Tensor, y: Tensor, heat: Tensor, bias: Tensor) -> Tensor:
    logits = F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).T * heat.exp() + bias
    return -F.logsigmoid(logits * (2 * torch.eye(x.shape[0], dtype=x.dtype) - 1)).sum(1).mean()


def variance_covariance(x: Tensor, y: Tensor) -> Tensor:
    made = F.mse_loss(x, y)
    for t in (x, y):
        t = t - t.mean(0)
        cover = t.T @ t / (t.shape[0] - 1)
        off = cover - torch.diag(cover.diagonal())
        made = made + F.relu(1 - (t.var(0) + 1e-4).sqrt()).mean() + 0.04 * off.pow(2).sum() / t.shape[1]
    return made


def quantile_huber(x: Tensor, target: Tensor) -> Tensor:
    """The loss of quantiles in distributional reinforcement learning."""
    off = target[:, None] - x[:, :, None]
    huber = torch.where(off.abs() <= 1, 0.5 * off * off, off.abs() - 0.5)
    at = (torch.arange(x.shape[1], dtype=x.dtype) + 0.5)[:, None] / x.shape[1]
    return ((at - (off.detach() < 0).to(x)).abs() * huber).mean(2).sum(1).mean()


def advantages(reward: Tensor, value: Tensor, done: Tensor) -> Tensor:
    """Generalised advantages, last step first: [time, envs]."""
    made, last = [], torch.zeros_like(reward[0])
    for n in range(reward.shape[0] - 1, -1, -1):
        alive = (done[n] < 1.5).to(reward)
        last = reward[n] + 0.99 * value[n + 1] * alive - value[n] + 0.94 * alive * last
        made.append(last)
    return torch.stack(made[::-1])


def sorted_distance(x: Tensor, y: Tensor, ways: Tensor) -> Tensor:
    """The sliced Wasserstein distance."""
    x, y = ((t @ F.normalize(ways, dim=0)).sort(0).values for t in (x, y))
    return (x - y).abs().mean()


def mean_discrepancy(x: Tensor, y: Tensor) -> Tensor:
    both = torch.cat([x, y])
    square = (both * both).sum(1)
    far = (square[:, None] + square - 2 * both @ both.T).clamp(min=0)
    kernel = torch.stack([torch.exp(-far / (width * far.detach().mean())) for width in (0.5, 1.0, 2.0)]).sum(
        0
    )
    n = x.shape[0]
    return kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[:n, n:].mean()


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "dynamic tanh": (dynamic_tanh, _of((16, 256, 384), (1,), (384,), (384,)), True),
    "canon layer": (canon, _of((8, 256, 384), (4, 384)), True),
    "minimal GRU": (min_gru, _of((8, 256, 256), (8, 256, 256)), True),
    "state space dual": (
        decay_mask,
        lambda: [
            torch.randn(2, 8, 64, 8, 32),
            *(torch.randn(2, 8, 64, 16) for _ in "bc"),
            -torch.rand(2, 8, 64, 8),
        ],
        True,
    ),
    "delta rule": (
        delta_rule,
        _of((4, 8, 12, 32), (4, 8, 12, 32), (4, 8, 12, 32), (4, 8, 12), (4, 8, 12)),
        True,
    ),
    "matrix memory": (matrix_memory, _of(*[(2, 4, 256, 64)] * 3, *[(2, 4, 256)] * 2), True),
    "forgetting attention": (forgetting_attention, _of(*[(2, 8, 256, 32)] * 3, (2, 8, 256)), True),
    "compressed blocks": (pooled_blocks, _of(*[(2, 8, 512, 64)] * 3, (16,)), True),
    "joined rotary": (joined_rotary, _of((4, 256, 512), (4, 256, 32), (256, 16), (256, 16)), True),
    "grouped router": (grouped_router, _of((4096, 64), (64,)), True),
    "hyper connections": (hyper_connections, _of((4, 256, 4, 256), (4, 256, 256), (4, 4), (4,)), True),
    "shifted lerps": (shifted_lerps, _of((4, 256, 256), (6, 256)), True),
    "relu squared, gated": (relu_squared_gated, _of((8, 256, 512), (8, 256, 512), (512,)), True),
    "stochastic depth": (stochastic_depth, _of((16, 197, 384), (16, 197, 384), (384,), (16,)), True),
    "adopt": (adopt, lambda: [*(torch.randn(512, 1024) for _ in range(3)), torch.rand(512, 1024)], False),
    "cautious adam": (
        cautious_adam,
        lambda: [*(torch.randn(512, 1024) for _ in range(3)), torch.rand(512, 1024)],
        False,
    ),
    "sophia": (sophia, _of(*[(1024, 1024)] * 4), False),
    "rows and columns normed": (row_normed, _of(*[(512, 1024)] * 3), False),
    "direct preference": (
        direct_preference,
        lambda: [torch.randn(8, 2, 64, 1000), torch.randint(0, 1000, (8, 2, 64)), torch.randn(8, 2)],
        True,
    ),
    "clipped policy": (clipped_policy, _of(*[(16, 16, 1024)] * 3, (16, 16), (16, 16, 1024)), True),
    "sigmoid of pairs": (sigmoid_pairs, _of((512, 128), (512, 128), (1,), (1,)), True),
    "variance and covariance": (variance_covariance, _of((512, 256), (512, 256)), True),
    "quantile huber": (quantile_huber, _of((256, 64), (256, 64)), True),
    "advantages": (advantages, _of((20, 20_000), (21, 20_000), (20, 20_000)), True),
    "sliced distance": (sorted_distance, _of((2000, 16), (2000, 16), (16, 64)), True),
    "mean discrepancy": (mean_discrepancy, _of((256, 32), (256, 32)), True),
}
"""Name: the function, its tensors, and whether it has gradients."""
