"""Scans of many steps, computed in blocks: values, indices and gradients of eager."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

import pytest
import torch
from torch import Tensor

import shardc

SCANS = {
    "sums": lambda x: torch.cumsum(x, -2),
    "products": lambda x: torch.cumprod(1 + 0.01 * x, -2),
    "maxima": lambda x: torch.cummax(x, -2).values,
    "minima": lambda x: torch.cummin(x, -2).values * 2,
    "sums to come": lambda x: x.flip(-2).cumsum(-2).flip(-2) - x,
    "with what follows": lambda x: torch.exp(0.01 * torch.cumsum(torch.relu(x), -2)) / (1 + x * x),
}


@pytest.mark.parametrize("name", SCANS)
def test_values_and_gradients(name: str) -> None:
    torch.manual_seed(0)
    _compare(SCANS[name], torch.randn(97, 17))
    _compare(SCANS[name], torch.randn(2, 40, 33))


@pytest.mark.parametrize("steps", [1, 32, 33, 1024, 1025])
def test_numbers_of_steps(steps: int) -> None:
    _compare(SCANS["sums to come"], torch.randn(steps, 16))


@pytest.mark.parametrize("steps", [9, 70])
@pytest.mark.parametrize("scan", [torch.cummax, torch.cummin])
def test_the_last_of_equal_extrema_has_the_index(
    scan: Callable[..., tuple[Tensor, Tensor]], steps: int
) -> None:
    x = torch.randint(5, (3, steps, 20)).float()
    _equal(lambda x: scan(x, 1), x)
    x[1, 3, 4], x[1, 5, 4], x[2, steps - 1, 6], x[0, :, 7], x[0, :, 8] = nan, nan, nan, inf, -inf
    _equal(lambda x: scan(x, 1), x)


def test_infinities_and_nan_in_sums() -> None:
    x = torch.randn(80, 32)
    x[3, 1], x[40, 2], x[41, 2], x[50, 3] = inf, inf, -inf, nan
    _equal(lambda x: x.cumsum(0).isnan(), x)
    _equal(lambda x: x.cumsum(0).isinf(), x)


def test_empty_and_other_dtypes() -> None:
    for x in (
        torch.randn(0, 20),
        torch.randn(40, 0),
        torch.randint(9, (50, 20)),
        torch.randn(50, 20).double(),
    ):
        compiled = torch.compile(lambda x: x.cumsum(0), backend="shardc", dynamic=False)
        torch.testing.assert_close(compiled(x), x.cumsum(0))
    halves = torch.randn(50, 20).bfloat16()
    torch.testing.assert_close(
        torch.compile(lambda x: x.cumsum(0), backend="shardc")(halves), halves.cumsum(0)
    )


def test_no_long_scan_stays_a_call() -> None:
    with torch.no_grad():
        report = str(shardc.explain_fusion(lambda x: torch.exp(x).cumsum(0) * 2, torch.randn(200, 500)))
    assert "calls outside of kernels" not in report


def _equal(function: Callable[[Tensor], Tensor | tuple[Tensor, Tensor]], x: Tensor) -> None:
    made, eager = torch.compile(function, backend="shardc", dynamic=False)(x), function(x)
    torch.testing.assert_close(tuple(made), tuple(eager), rtol=0, atol=0, equal_nan=True)


def _compare(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="shardc", dynamic=False)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-4)
    found = []
    for call in (compiled, function):
        leaf = x.detach().requires_grad_()
        made = call(leaf)
        torch.manual_seed(0)
        found.append([made.detach(), *torch.autograd.grad(made, leaf, torch.randn(made.shape))])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
