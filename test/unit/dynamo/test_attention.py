"""Attention under ``torch.compile``: kernels forward and backward, next to eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from shardc.backends.eager.proof.tolerance import difference, magnitude, own_precision

FORWARD, BACKWARD = (
    f'kernel("scaled_dot_product_flash_attention_for_cpu_{part}' for part in ("", "backward_")
)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))


class SelfAttention(nn.Module):
    """With one matmul for queries, keys and values, whose heads are strided views of its result."""

    def __init__(self, heads: int, kv_heads: int, size: int, mask: Tensor | None, causal: bool) -> None:
        super().__init__()
        self.sizes = [heads, kv_heads, kv_heads]
        self.inward = nn.Linear(heads * size, sum(self.sizes) * size)
        self.outward = nn.Linear(heads * size, heads * size)
        self.size, self.mask, self.causal = size, mask, causal

    def forward(self, x: Tensor) -> Tensor:
        parts = self.inward(x).split([n * self.size for n in self.sizes], -1)
        q, k, v = (
            p.unflatten(-1, (n, self.size)).transpose(1, 2) for p, n in zip(parts, self.sizes, strict=True)
        )
        grouped = self.sizes[0] != self.sizes[1]
        y = functional.scaled_dot_product_attention(
            q, k, v, self.mask, is_causal=self.causal, enable_gqa=grouped
        )
        return self.outward(y.transpose(1, 2).flatten(2))


def dead_row() -> Tensor:
    mask = torch.ones(1, 1, 30, 30, dtype=torch.bool).tril()
    mask[:, :, 7] = False
    return mask


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "kv_heads, mask, causal", [(4, None, True), (2, None, False), (4, dead_row(), False)]
)
def test_training_equals_eager(compiled: Callable[..., Any], programs: list[str], kv_heads, mask, causal):
    model = SelfAttention(4, kv_heads, 12, mask, causal)
    other, x = copy.deepcopy(model), torch.randn(2, 30, 48)
    found, expected = compiled(other, fuse=True)(x), model(x)
    for y in (found, expected):
        y.square().sum().backward()
    assert [BACKWARD in text for text in programs] == [False, True] and FORWARD in programs[0]
    bound = own_precision(torch.float32).relative
    assert difference(found.detach(), expected.detach()) <= bound * magnitude(expected.detach())
    largest = max(magnitude(p.grad) for p in model.parameters())
    for ours, theirs in zip(other.parameters(), model.parameters(), strict=True):
        assert difference(ours.grad, theirs.grad) <= bound * largest


@pytest.mark.slow
def test_no_tensor_is_copied_for_the_backward_kernel(compiled: Callable[..., Any], programs: list[str]):
    """What forward saved with heads beside sizes is read so: seen in that order again, it is contiguous."""
    model = SelfAttention(4, 4, 12, None, True)
    compiled(model, fuse=True)(torch.randn(2, 32, 48)).sum().backward()
    backward = next(text for text in programs if BACKWARD in text)
    assert "permute(" in backward
