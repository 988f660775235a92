"""Tensors in another order of dims than the contiguous one: same values and strides as in eager."""

from __future__ import annotations

from collections.abc import Callable

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


def test_channels_last_is_read_and_written_in_place() -> None:
    x = torch.randn(2, 8, 20, 20).to(memory_format=torch.channels_last)
    report = str(shardc.explain_fusion(lambda x: torch.tanh(x) * 2, x))
    assert "1 kernels replace 2 of 2 calls" in report
    assert "clone" not in report


def _norm_of_channels(x: Tensor, w: Tensor) -> Tensor:
    y = x - x.mean(1, keepdim=True)
    return w[:, None, None] * y * torch.rsqrt(y.square().mean(1, keepdim=True) + 1e-5)


def _batch_norm(x: Tensor, w: Tensor) -> Tensor:
    return F.leaky_relu(F.batch_norm(x, None, None, w, w, True))


def _slopes(x: Tensor, w: Tensor) -> Tensor:
    return F.prelu(x, w) * x.double().float()


def _shifted(x: Tensor, w: Tensor) -> Tensor:
    return torch.cat([x[:, 1:], x[:, :1].flip(2)], 1) * w[:, None, None]


def _rows_and_planes(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.sigmoid(x.amax(3, keepdim=True) + x.mean((0, 2), keepdim=True)) + w[-1]


def _written(x: Tensor, w: Tensor) -> Tensor:
    y = x * 2
    y[:, 0] = w[0]
    return y.permute(0, 2, 3, 1).flatten(1) + 1


def _convolved(x: Tensor, w: Tensor) -> Tensor:
    return F.gelu(F.conv2d(F.silu(x), w[:, None, None, None].expand(-1, x.shape[1], 1, 1)))


def _pooled(x: Tensor, w: Tensor) -> Tensor:
    return F.max_pool2d(F.relu(x), 3, 2, 1).mul(2) if min(x.shape[2:]) > 1 else x + w.sum()


FUNCTIONS = (
    _norm_of_channels,
    _batch_norm,
    _slopes,
    _shifted,
    _rows_and_planes,
    _written,
    _convolved,
    _pooled,
)


@pytest.mark.parametrize("size", [(2, 5, 7, 9), (1, 3, 1, 4), (3, 2, 6, 1), (2, 16, 8, 8)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_channels_last(function: Callable[..., Tensor], size: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(size).to(memory_format=torch.channels_last)
    _compare(function, x, torch.randn(size[1]))


@pytest.mark.parametrize("function", [_norm_of_channels, _slopes, _shifted])
def test_other_orders(function: Callable[..., Tensor]) -> None:
    torch.manual_seed(0)
    _compare(function, torch.randn(9, 4, 6, 3).permute(2, 1, 3, 0), torch.randn(4))


def test_a_volume_and_an_empty_tensor() -> None:
    def function(x: Tensor) -> Tensor:
        return F.mish(x) + x.sum(1, keepdim=True)

    _compare(function, torch.randn(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d))
    _compare(function, torch.randn(0, 3, 4, 5).to(memory_format=torch.channels_last))


def test_a_slice_of_other_strides_is_copied() -> None:
    x = torch.randn(2, 6, 8, 8).to(memory_format=torch.channels_last)
    _compare(lambda x: torch.tanh(x) * 2, x[:, ::2])


def test_mutated_inputs() -> None:
    def step(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(0.9).add_(y)
        return x * 2

    x, y = (torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last) for _ in range(2))
    a, b = x.clone(), x.clone()
    made = torch.compile(step, backend="shardc", dynamic=False)(a, y)
    torch.testing.assert_close(made, step(b, y))
    torch.testing.assert_close(a, b)
    assert a.stride() == x.stride()


def _compare(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Compare values, gradients and their strides with eager's; a gradient comes in either order."""
    compiled = torch.compile(function, backend="shardc", dynamic=False)
    for form in (torch.contiguous_format, torch.preserve_format):
        found = []
        for call in (compiled, function):
            leaves = [t.detach().requires_grad_() for t in inputs]
            made = call(*leaves)
            torch.manual_seed(1)
            seed = torch.empty_like(made, memory_format=form).copy_(torch.randn(made.shape))
            used = torch.autograd.grad(made, leaves, seed, allow_unused=True)
            found.append([made.detach(), *(t for t in used if t is not None)])
        for got, other in zip(*found, strict=True):
            torch.testing.assert_close(got, other, rtol=1e-4, atol=1e-5)
        assert found[0][0].stride() == found[1][0].stride()
