"""Results in another order of dims than the contiguous one: same values and strides as in eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import shardc


def _reversed_columns(x: Tensor) -> Tensor:
    y = x.T.flip(1)
    return (y - y.mean(0)) / (y.var(0, unbiased=False) + 1e-5).sqrt()


def _turned(x: Tensor) -> Tensor:
    return torch.relu(x.T) * 2


def _used_again(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.exp(x.T)
    return y, y.sum(0)


def _one_twice(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.T + 1
    return y, y


def _planes(x: Tensor) -> Tensor:
    """Layer norm over the first of three dims, returned in the order of ``x``."""
    return x + F.gelu(F.layer_norm(x.view(40, 6, 8).permute(1, 2, 0), (40,))).permute(2, 0, 1).reshape(40, 48)


@pytest.mark.parametrize("function", [_reversed_columns, _turned, _used_again, _one_twice, _planes])
def test_values_and_strides(function) -> None:
    x = torch.randn(40, 48)
    made, eager = torch.compile(function, backend="shardc", dynamic=False)(x), function(x)
    for got, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (made, eager)), strict=True):
        assert got.stride() == other.stride()
        torch.testing.assert_close(got, other, rtol=1e-4, atol=1e-5)


def test_the_op_that_makes_the_result_is_part_of_a_kernel() -> None:
    report = shardc.explain_fusion(_reversed_columns, torch.randn(400, 500))
    assert "1 kernels replace 8 of 8 calls" in str(report)


def test_results_from_other_layouts_stay_calls() -> None:
    """A kernel would read a contiguous copy of a tensor with channels last."""
    x = torch.randn(2, 8, 20, 20).to(memory_format=torch.channels_last)
    report = shardc.explain_fusion(lambda x: torch.tanh(x) * 2, x)
    assert "clone" not in str(report)
