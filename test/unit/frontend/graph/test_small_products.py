"""Batched products of small matrices as sums; others stay products."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from shardc.frontend.graph.small_products import MIN_BATCH, small_product_table

aten = torch.ops.aten


def _traced(x: Tensor, y: Tensor) -> tuple[bool, Tensor]:
    """Return whether the product stays one, and the trace's result."""
    traced = make_fx(torch.bmm, decomposition_table=small_product_table())(x, y)
    return any(node.target is aten.bmm.default for node in traced.graph.nodes), traced(x, y)


@pytest.mark.parametrize("sizes", [(3, 3, 1), (3, 3, 3), (1, 16, 4), (8, 8, 8), (2, 1, 2)], ids=str)
def test_small_products_are_sums(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    x, y = torch.randn(MIN_BATCH, m, k), torch.randn(MIN_BATCH, k, n)
    stays, found = _traced(x, y)
    assert not stays
    torch.testing.assert_close(found, x @ y)


@pytest.mark.parametrize(
    "x, y",
    [
        (torch.ones(MIN_BATCH, 9, 9), torch.ones(MIN_BATCH, 9, 2)),
        (torch.ones(5, 51, 9), torch.ones(5, 9, 1)),
        (torch.ones(5, 60, 0), torch.ones(5, 0, 1)),
        (torch.ones(8, 100, 9).bfloat16(), torch.ones(8, 9, 1).bfloat16()),
        (torch.ones(MIN_BATCH - 1, 3, 3), torch.ones(MIN_BATCH - 1, 3, 3)),
        (torch.ones(MIN_BATCH, 3, 3).bfloat16(), torch.ones(MIN_BATCH, 3, 3).bfloat16()),
    ],
    ids=["large", "few results", "no terms", "bf16 with vectors", "few", "bf16"],
)
def test_other_products_stay(x: Tensor, y: Tensor) -> None:
    stays, found = _traced(x, y)
    assert stays
    torch.testing.assert_close(found, torch.bmm(x, y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "sizes", [(8, 40, 300, 1), (16, 1, 65, 33), (300, 1, 7, 1), (1, 256, 2, 1), (2, 1, 1000, 500)], ids=str
)
def test_products_with_vectors_are_sums(sizes: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    batch, m, k, n = sizes
    plain = torch.randn(batch, m, k, dtype=dtype), torch.randn(batch, k, n, dtype=dtype)
    turned = torch.randn(batch, k, m, dtype=dtype).mT, torch.randn(batch, n, k, dtype=dtype).mT
    one = torch.randn(m, k, dtype=dtype).expand(batch, m, k), torch.randn(batch, k, n, dtype=dtype)
    compiled = torch.compile(torch.bmm, backend="shardc")
    for x, y in (plain, turned, one):
        stays, found = _traced(x, y)
        assert not stays
        exact = torch.bmm(x.double(), y.double())
        for made in (found, compiled(x, y)):
            assert made.shape == exact.shape and made.stride() == torch.bmm(x, y).stride()
            bound = 4e-7 if dtype == torch.float32 else 1e-15
            scale = torch.bmm(x.double().abs(), y.double().abs())
            assert ((made.double() - exact).abs() <= bound * scale).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_outer_products_are_products_of_elements(dtype: torch.dtype) -> None:
    x, y = torch.randn(3, 1, 50).mul(9).to(dtype).mT, torch.randn(3, 40, 1).mul(9).to(dtype).mT
    stays, found = _traced(x, y)
    assert not stays and torch.equal(found, torch.bmm(x, y)) and found.is_contiguous()


def test_products_with_vectors_keep_nan_and_inf() -> None:
    x, y = torch.randn(8, 40, 30), torch.randn(8, 30, 1)
    x[0, 0, 0], x[1, 1, 1], y[2, 3, 0] = float("nan"), float("inf"), -float("inf")
    made = torch.compile(torch.bmm, backend="shardc")(x, y)
    torch.testing.assert_close(made, torch.bmm(x, y), equal_nan=True)


def test_gradients_of_products_with_vectors() -> None:
    x, y = torch.randn(8, 40, 30, requires_grad=True), torch.randn(8, 30, 1, requires_grad=True)
    seed = torch.randn(8, 40, 1)
    found = torch.autograd.grad(torch.compile(torch.bmm, backend="shardc")(x, y), (x, y), seed)
    exact = torch.autograd.grad(torch.bmm(x.double(), y.double()), (x, y), seed.double())
    for a, b in zip(found, exact, strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_products_of_vectors_are_pointwise(dim: int) -> None:
    x, y = torch.randn(3, 3, 3), torch.randn(3, 1, 3).expand(3, 3, 3)
    cross = lambda x, y: torch.linalg.cross(x, y, dim=dim)  # noqa: E731
    traced = make_fx(cross, decomposition_table=small_product_table())(x, y)
    assert not any(node.target is aten.linalg_cross.default for node in traced.graph.nodes)
    torch.testing.assert_close(traced(x, y), cross(x, y))


def test_gradients_of_products_of_vectors() -> None:
    x, y = (torch.randn(5, 1, 3, requires_grad=True), torch.randn(1, 4, 3, requires_grad=True))
    compiled = torch.compile(torch.linalg.cross, backend="shardc")
    exact = torch.linalg.cross(x.double(), y.double())
    made = compiled(x, y)
    torch.testing.assert_close(made.double(), exact)
    seed = torch.randn_like(made)
    wanted = torch.autograd.grad(exact, (x, y), seed.double())
    for found, one in zip(torch.autograd.grad(made, (x, y), seed), wanted, strict=True):
        torch.testing.assert_close(found, one)
