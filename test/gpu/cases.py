"""Functions of tensors, a kernel family each, at sizes that cross masks. Needs torch alone.

``prepare.py`` compiles them where shardc is, ``test_kernels.py`` runs what it made where a GPU is. Each is
its own reference: what it gives in eager PyTorch, in f64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten
F32, BF16, I64 = torch.float32, torch.bfloat16, torch.int64
BOUNDS = {torch.float32: 2e-5, torch.bfloat16: 2.0**-6}
"""Of an error, relative to the largest element of a result, by the coarsest dtype there is."""


@dataclass(frozen=True)
class Given:
    """A random tensor: normal numbers, or integers below ``below``."""

    shape: tuple[int, ...]
    dtype: torch.dtype = F32
    below: int = 0

    def make(self, device: torch.device | str, generator: torch.Generator) -> Tensor:
        """Equal on every device: drawn on the CPU."""
        if self.below:
            return torch.randint(self.below, self.shape, dtype=self.dtype, generator=generator).to(device)
        return torch.randn(self.shape, generator=generator).to(device, self.dtype)


@dataclass(frozen=True)
class Case:
    """``function`` of ``given``. ``bound``: of errors, if not that of the dtypes. ``small``: fit for an
    interpreter.
    """

    function: Callable[..., Any]
    given: tuple[Given, ...]
    bound: float = 0.0
    small: bool = True

    def inputs(self, device: torch.device | str) -> list[Tensor]:
        generator = torch.Generator().manual_seed(7)
        return [g.make(device, generator) for g in self.given]

    def results(self, *tensors: Tensor) -> list[Tensor]:
        made = self.function(*tensors)
        return [made] if isinstance(made, Tensor) else list(made)

    def tolerance(self) -> float:
        return self.bound or max(BOUNDS[g.dtype] for g in self.given if g.dtype.is_floating_point)


def t(*shape: int, dtype: torch.dtype = F32) -> Given:
    return Given(shape, dtype)


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    wide = x if x.dtype == torch.float64 else x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def layer_norm_backward(g: Tensor, x: Tensor, mean: Tensor, scale: Tensor, w: Tensor) -> Any:
    return aten.native_layer_norm_backward(g, x, list(w.shape), mean, scale.abs(), w, w, [True] * 3)


def cross_entropy(x: Tensor, target: Tensor) -> Any:
    """Loss and gradient."""
    wide = x if x.dtype == torch.float64 else x.float()
    logs = torch.log_softmax(wide, -1)
    loss = F.nll_loss(logs, target)
    rows = torch.arange(x.shape[-1], device=x.device) == target[:, None]
    return loss, ((logs.exp() - rows.to(wide.dtype)) / x.shape[0]).to(x.dtype)


def dropout_add_norm(x: Tensor, residual: Tensor, w: Tensor, b: Tensor) -> Any:
    seed = torch.full((), 11, dtype=I64, device=x.device)
    kept = torch.ops.shardc.uniform(seed, 3, list(x.shape), [0] * x.dim(), list(x.shape), dtype=F32) >= 0.1
    y = residual + x * kept.to(x.dtype) / 0.9
    return y, F.layer_norm(y, list(w.shape), w, b)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * cos + turned * sin


def adamw(*tensors: Tensor) -> list[Tensor]:
    """Of several parameters at once."""
    made: list[Tensor] = []
    for p, g, m, v in zip(*[iter(tensors)] * 4, strict=True):
        m, v = m.lerp(g, 0.1), v.square() * 0.999 + g * g * 0.001
        made += [p - 0.001 * m / (v.sqrt() + 1e-8), m, v]
    return made


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.ops.shardc.attention(q, k, v, None, True, 1 / math.sqrt(q.shape[-1]))[0]


def attend_backward(g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Any:
    scale = 1 / math.sqrt(q.shape[-1])
    out, lse = torch.ops.shardc.attention(q, k, v, None, True, scale)
    return torch.ops.shardc.attention_backward(g, q, k, v, None, out, lse, True, scale, 0)


def attend_masked(q: Tensor, k: Tensor, v: Tensor, shown: Tensor) -> Tensor:
    """``shown``: integers, 0 for what a row does not see; the first row sees nothing."""
    mask = (shown > 0) & (torch.arange(shown.shape[2], device=q.device) > 0)[:, None]
    return torch.ops.shardc.attention(q, k, v, mask, False, 0.2)[0]


def attend_masked_backward(g: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Any:
    out, lse = torch.ops.shardc.attention(q, k, v, bias, False, 0.2)
    return torch.ops.shardc.attention_backward(g, q, k, v, bias, out, lse, False, 0.2, 0)


def attend_window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Each row sees itself and the 39 keys before it."""
    row, key = torch.arange(q.shape[2], device=q.device)[:, None], torch.arange(k.shape[2], device=q.device)
    return torch.ops.shardc.attention(q, k, v, ((key <= row) & (key > row - 40))[None, None], False, 0.2)[0]


def experts(x: Tensor, w: Tensor, shares: Tensor) -> Tensor:
    """Rows of ``x`` by the matrix of their group; how many rows a group has is in proportion to
    ``shares``.
    """
    ends = shares.cumsum(0) * x.shape[0] // shares.sum()
    if x.dtype != torch.float64:
        return torch._grouped_mm(x, w, offs=ends.to(torch.int32))
    rows = pairwise([0, *ends.tolist()])
    return torch.cat([x[first:last] @ w[n] for n, (first, last) in enumerate(rows)])


def linear_loss(x: Tensor, w: Tensor, target: Tensor) -> Any:
    """Loss and both gradients of a linear layer with a cross entropy behind it, which hold no logits."""
    logp, lse, _, _ = torch.ops.shardc.linear_cross_entropy(x, w, target)
    grad = torch.full_like(logp, -1 / x.shape[0])
    dx, dw, _ = torch.ops.shardc.linear_cross_entropy_backward(grad, x, w, target, lse)
    return -logp.mean(), dx, dw


def matmul_gelu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(torch.addmm(b, x, w))


CASES: dict[str, Case] = {
    "bias_gelu": Case(lambda x, b: F.gelu(x + b), (t(129, 1003), t(1003))),
    "swiglu_bf16": Case(lambda x, y: F.silu(x) * y, (t(127, 1000, dtype=BF16), t(127, 1000, dtype=BF16))),
    "transposed": Case(lambda x, y: x + y.t(), (t(129, 1031), t(1031, 129))),
    "rope": Case(rope, (t(2, 3, 37, 64, dtype=BF16), t(37, 64, dtype=BF16), t(37, 64, dtype=BF16))),
    "softmax": Case(lambda x: torch.softmax(x, -1), (t(127, 1000),)),
    "softmax_long_bf16": Case(lambda x: torch.softmax(x, -1), (t(5, 20011, dtype=BF16),)),
    "rms_norm_bf16": Case(rms_norm, (t(33, 4097, dtype=BF16), t(4097, dtype=BF16))),
    "layer_norm": Case(lambda x, w, b: F.layer_norm(x, [1023], w, b), (t(65, 1023), t(1023), t(1023))),
    "layer_norm_backward": Case(
        layer_norm_backward, (t(513, 257), t(513, 257), t(513, 1), t(513, 1), t(257))
    ),
    "sum_over_rows": Case(lambda x: (x.sum(0), x.amax(0), x.sum()), (t(1031, 129),)),
    "embedding": Case(lambda w, i: aten.embedding(w, i) * 2, (t(501, 129), Given((7, 43), I64, 501))),
    "scatter_add": Case(
        lambda g, i: aten.embedding_dense_backward(g, i, 97, -1, False), (t(301, 65), Given((301,), I64, 97))
    ),
    "cross_entropy": Case(cross_entropy, (t(129, 1003), Given((129,), I64, 1003))),
    "cross_entropy_bf16": Case(cross_entropy, (t(65, 5003, dtype=BF16), Given((65,), I64, 5003))),
    "dropout_add_norm": Case(dropout_add_norm, (t(65, 257), t(65, 257), t(257), t(257))),
    "adamw": Case(adamw, tuple(g for n in (1 << 12, 1001, 7) for g in (t(n),) * 4)),
    "matmul": Case(lambda x, y: x @ y, (t(129, 200), t(200, 136)), 1e-4),
    "matmul_bf16": Case(lambda x, y: x @ y, (t(256, 512, dtype=BF16), t(512, 384, dtype=BF16))),
    "matmul_odd_bf16": Case(lambda x, y: x @ y, (t(257, 131, dtype=BF16), t(131, 135, dtype=BF16))),
    "matmul_long_bf16": Case(
        lambda x, y: x @ y, (t(64, 16384, dtype=BF16), t(16384, 64, dtype=BF16)), small=False
    ),
    "matmul_large_bf16": Case(
        lambda x, y: x @ y.t(), (t(2048, 1024, dtype=BF16), t(4096, 1024, dtype=BF16)), small=False
    ),
    "matmul_gelu": Case(matmul_gelu, (t(129, 104, dtype=BF16), t(104, 72, dtype=BF16), t(72, dtype=BF16))),
    "matmul_batched": Case(torch.bmm, (t(5, 65, 40), t(5, 40, 33)), 1e-4),
    "attention": Case(attend, (t(2, 4, 37, 24), t(2, 2, 37, 24), t(2, 2, 37, 24)), 1e-3),
    "attention_bf16": Case(
        attend, (t(2, 4, 257, 64, dtype=BF16), *(t(2, 2, 257, 64, dtype=BF16),) * 2), 2.0**-5
    ),
    "attention_backward": Case(
        attend_backward, (t(2, 4, 37, 24), t(2, 4, 37, 24), t(2, 2, 37, 24), t(2, 2, 37, 24)), 1e-3
    ),
    "attention_backward_bf16": Case(
        attend_backward,
        (*(t(2, 4, 257, 64, dtype=BF16),) * 2, *(t(2, 2, 257, 64, dtype=BF16),) * 2),
        2.0**-4,
        False,
    ),
    "attention_masked": Case(
        attend_masked,
        (t(2, 4, 37, 20), t(2, 1, 45, 20), t(2, 1, 45, 20), Given((2, 1, 37, 45), I64, 3)),
        1e-3,
    ),
    "attention_masked_backward": Case(
        attend_masked_backward,
        (*(t(2, 4, 37, 40),) * 2, t(2, 2, 45, 40), t(2, 2, 45, 40), t(1, 4, 37, 45)),
        1e-3,
    ),
    "attention_window_bf16": Case(attend_window, (*(t(2, 4, 131, 64, dtype=BF16),) * 3,), 2.0**-5),
    "experts_bf16": Case(experts, (t(77, 48, dtype=BF16), t(5, 48, 40, dtype=BF16), Given((5,), I64, 9))),
    "experts_large_bf16": Case(
        experts, (t(4096, 1024, dtype=BF16), t(8, 1024, 2048, dtype=BF16), Given((8,), I64, 9)), small=False
    ),
    "linear_loss_bf16": Case(
        linear_loss, (t(65, 48, dtype=BF16), t(203, 48, dtype=BF16), Given((65,), I64, 203)), 2.0**-5
    ),
}
"""By name. f32 products may be tf32 on a GPU only where torch allows it; attention in f32 rounds as its tiles
do.
"""
