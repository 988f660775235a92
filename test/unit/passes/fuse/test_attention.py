"""Attention calls as kernels: which become one, how operands are read, and that the oracle
computes the same.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import shardc.runtime.operators.attention  # noqa: F401  (defines shardc::attention)

from .conftest import assert_near

aten, ours = torch.ops.aten, torch.ops.shardc
FLASH = aten._scaled_dot_product_flash_attention_for_cpu
FLASH_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward


def tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape) for shape in shapes]


def both(
    q: Tensor, k: Tensor, v: Tensor, grad: Tensor, mask: Tensor | None, causal: bool, offset: int
) -> tuple[Tensor, ...]:
    out, lse = ours.attention(q, k, v, mask, causal, 0.3, offset)
    return out, lse, *ours.attention_backward(grad, q, k, v, mask, out, lse, causal, 0.3, offset)


@pytest.mark.parametrize("causal, offset", [(False, 0), (True, 0), (True, 3)])
def test_shardc_attention_and_its_backward(fuse, causal, offset):
    """Grouped heads, each operand in another layout; the backward's too."""
    q, k, v, grad = tensors((2, 21, 4, 5), (2, 2, 5, 19), (2, 2, 19, 3), (2, 21, 4, 3))

    def f(q, k, v, grad):
        return both(q.transpose(1, 2), k.permute(0, 1, 3, 2), v, grad.transpose(1, 2), None, causal, offset)

    found = fuse(f, q, k, v, grad)
    assert found.kernels == [("shardc.attention",), ("shardc.attention_backward",)]
    assert set(found.stayed) == {"aten.transpose.int"}, "transposes of operands are read through"
    for got, wanted in zip(found.results, f(q, k, v, grad), strict=True):
        assert_near(got, wanted)


@pytest.mark.parametrize("kind", ["bool", "added", "expanded", "two dims"])
def test_masks(fuse, kind):
    q, k, v, grad = tensors((2, 2, 16, 4), (2, 2, 20, 4), (2, 2, 20, 4), (2, 2, 16, 4))
    mask = {
        "bool": torch.rand(1, 2, 16, 20) < 0.7,
        "added": torch.randn(2, 1, 16, 20).masked_fill(torch.rand(16, 20) < 0.3, -math.inf),
        "expanded": torch.rand(2, 1, 1, 20) < 0.7,
        "two dims": torch.randn(16, 20),
    }[kind]
    if kind == "two dims":
        found = fuse(lambda q, k, v, m: FLASH(q, k, v, 0.0, False, attn_mask=m), q, k, v, mask)
        assert found.kernels == [("aten._scaled_dot_product_flash_attention_for_cpu",)]
        return
    shape = (2, 1, 16, 20) if kind == "expanded" else mask.shape
    found = fuse(lambda q, k, v, g, m: both(q, k, v, g, m.expand(shape), False, 0), q, k, v, grad, mask)
    assert len(found.kernels) == 2 and "aten.expand" not in found.stayed


def test_rows_that_see_nothing_as_aten(fuse):
    """ATen's CPU kernel says lse 0 for them, and takes it back."""
    q, k, v, grad = tensors((1, 2, 20, 4), (1, 2, 18, 4), (1, 2, 18, 4), (1, 2, 20, 4))
    mask = torch.zeros(1, 1, 20, 18)
    mask[:, :, 5] = -math.inf

    def f(q, k, v, grad, mask):
        out, lse = FLASH(q, k, v, 0.0, False, attn_mask=mask)
        return out, lse, *FLASH_BACKWARD(grad, q, k, v, out, lse, 0.0, False, attn_mask=mask)

    found = fuse(f, q, k, v, grad, mask)
    assert len(found.kernels) == 2
    for got, wanted in zip(found.results, f(q, k, v, grad, mask), strict=True):
        assert_near(got, wanted)
    assert found.results[1][0, :, 5].tolist() == [0.0, 0.0]


def test_what_stays(fuse):
    """Few queries leave lanes empty; f64 has no lanes."""
    few = fuse(
        lambda q, k: ours.attention(q, k, k, None, False, 0.5)[0], *tensors((1, 2, 17, 4), (1, 2, 64, 4))
    )
    assert few.kernels == []
    wide = [x.double() for x in tensors((1, 2, 32, 4), (1, 2, 32, 4))]
    assert fuse(lambda q, k: ours.attention(q, k, k, None, False, 0.5)[0], *wide).kernels == []
