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
        (torch.ones(MIN_BATCH, 9, 9), torch.ones(MIN_BATCH, 9, 1)),
        (torch.ones(MIN_BATCH - 1, 3, 3), torch.ones(MIN_BATCH - 1, 3, 3)),
        (torch.ones(MIN_BATCH, 3, 3).bfloat16(), torch.ones(MIN_BATCH, 3, 3).bfloat16()),
    ],
    ids=["large", "few", "bf16"],
)
def test_other_products_stay(x: Tensor, y: Tensor) -> None:
    stays, found = _traced(x, y)
    assert stays
    torch.testing.assert_close(found, torch.bmm(x, y))
