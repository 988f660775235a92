"""Ops with many results whose elements are read at other indices: each read computes its own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import shardc.backends.cpu.compile as cpu
from shardc.dialects.inner_ops import inner_ops


def correlations(x: Tensor, y: Tensor) -> Tensor:
    """Correlations of features with those up to two pixels away."""
    wide = F.pad(y, (2, 2, 2, 2))
    h, w = x.shape[2:]
    return torch.stack([(x * wide[..., i : i + h, j : j + w]).mean(1) for i in range(5) for j in range(5)], 1)


def test_gradients_of_many_windows_are_small_kernels(monkeypatch) -> None:
    counts: list[int] = []
    emit = cpu._emit

    def counted(function, module):
        made = emit(function, module)
        counts.append(len(list(inner_ops(module.operation))))
        return made

    monkeypatch.setattr(cpu, "_emit", counted)
    torch.manual_seed(0)
    x, y = (torch.randn(2, 3, 40, 67, requires_grad=True) for _ in range(2))
    torch._dynamo.reset()
    found = torch.compile(correlations, backend="shardc", dynamic=False)(x, y)
    wanted = correlations(x.double(), y.double())
    seed = torch.randn(wanted.shape)
    gradients = torch.autograd.grad(found, (x, y), seed)
    exact = torch.autograd.grad(wanted, (x, y), seed.double())
    for got, true in zip((found, *gradients), (wanted, *exact), strict=True):
        torch.testing.assert_close(got.double(), true.double(), rtol=1e-5, atol=1e-5)
    assert max(counts, default=0) < 12_000, "products of all windows for each window: 25 times as many ops"
