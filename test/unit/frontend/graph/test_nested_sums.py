"""Sums of sums as one; others stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from shardc.frontend.graph.nested_sums import join_sums

aten = torch.ops.aten


def _sums(function: Callable[[Tensor], object], x: Tensor) -> tuple[int, object]:
    """Return how many sums and means are left, and the result."""
    traced = make_fx(function, tracing_mode="fake")(x)
    join_sums(traced.graph)
    traced.graph.lint()
    traced.recompile()
    targets = [str(node.target) for node in traced.graph.nodes]
    return sum("sum" in t or "mean" in t for t in targets), traced(x)


@pytest.mark.parametrize("shape", [(4, 5), (1, 1), (3, 1, 7)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum(-1).mean(),
        lambda x: x.sum((0, 1)).sum(),
        lambda x: x.sum(0, keepdim=True).mean(),
        lambda x: x.sum(0).sum(0, keepdim=True).sum(),
    ],
)
def test_one_sum(function: Callable[[Tensor], Tensor], shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape, dtype=dtype)
    count, found = _sums(function, x)
    assert count <= 2
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), function(x.double()), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: [s := x.sum(-1), s.mean()],
        lambda x: (x.sum(-1) * 2).mean(),
        lambda x: x.sum(-1).sum(0),
        lambda x: x.amax(-1).sum(),
        lambda x: x.sum(-1, dtype=torch.float64).sum(),
    ],
)
def test_others_stay(function: Callable[[Tensor], object]) -> None:
    x = torch.randn(4, 5, 2)
    before = make_fx(function, tracing_mode="fake")(x)
    wanted = sum("sum" in str(n.target) or "mean" in str(n.target) for n in before.graph.nodes)
    count, found = _sums(function, x)
    assert count == wanted
    torch.testing.assert_close(found, function(x))


def test_bf16_sums_stay_two() -> None:
    count, _ = _sums(lambda x: x.sum(-1).mean(), torch.randn(4, 5).bfloat16())
    assert count == 2


def test_a_sum_of_nothing() -> None:
    function = lambda x: x.sum(-1).mean()  # noqa: E731
    _, found = _sums(function, torch.randn(3, 0))
    torch.testing.assert_close(found, function(torch.randn(3, 0)))
