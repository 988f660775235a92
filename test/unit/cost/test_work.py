"""Floating-point operations and sizes of products."""

import pytest
import torch

from shardc.cost.work import flops, matmul_sizes
from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType


@pytest.mark.parametrize(
    ("left", "right", "sizes"),
    [
        ((4, 8), (8, 2), (1, 4, 2, 8)),
        ((3, 4, 8), (3, 8, 2), (3, 4, 2, 8)),
        ((5, 3, 4, 8), (5, 3, 8, 2), (15, 4, 2, 8)),
        ((4, 8), (3, 8, 2), (3, 4, 2, 8)),
        ((3, 4, 8), (8, 2), (3, 4, 2, 8)),
        ((3, 4, 8), (8,), (1, 12, 1, 8)),
        ((8,), (3, 8, 2), (3, 1, 2, 8)),
    ],
)
def test_sizes_are_those_of_the_product(
    left: tuple[int, ...], right: tuple[int, ...], sizes: tuple[int, int, int, int]
) -> None:
    batch, m, n, k = matmul_sizes(left, right)
    assert (batch, m, n, k) == sizes
    assert torch.matmul(torch.zeros(left), torch.zeros(right)).numel() == batch * m * n


def test_products_of_batches_are_counted() -> None:
    types = [TensorType(shape, torch.float16) for shape in ((2, 8, 64, 16), (2, 8, 16, 64), (2, 8, 64, 64))]
    assert flops(OpCall("aten.matmul", tuple(types[:2]), (types[2],))) == 2 * 16 * 64 * 64 * 16
