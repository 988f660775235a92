"""Values that are compared with their own extrema have the same bits in all kernels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor


def _decayed(x: Tensor) -> Tensor:
    """Smallest of exponentials of pairs; the backward computes the pairs again."""
    pairs = x[:, :, None] * x[:, None]
    return torch.exp(0.1 * (pairs.amax(1)[:, :, None] - pairs)).amin(1)


def _largest_error(x: Tensor) -> Tensor:
    return torch.erf(x[:, :, None] * x[:, None] * 0.3 + x[:, None] * x[:, None]).amax(2)


@pytest.mark.parametrize("function", [_decayed, _largest_error])
def test_gradients_of_extrema_reach_an_element(function) -> None:
    """Rows of 300 have a rest of 12 elements, and extrema are found in loops without tables in registers."""
    torch.manual_seed(0)
    x = torch.rand(4, 300)
    grads = []
    for call in (torch.compile(function, backend="shardc", dynamic=False), function):
        leaf = x.clone().requires_grad_()
        grads.append(torch.autograd.grad(call(leaf).sum(), leaf)[0])
    assert torch.isfinite(grads[0]).all()
    torch.testing.assert_close(grads[0].sum(), grads[1].sum(), rtol=1e-3, atol=1e-3)
