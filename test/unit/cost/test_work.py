"""Floating-point operations and sizes of products."""

import pytest
import torch

from shardc.cost.work import computed_flops, flops, matmul_sizes, moved_bytes, seen_part
from shardc.dialects.aten.call import INT_VALUE, OpCall
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


def test_of_a_sliced_tensor_the_part_counts() -> None:
    whole, part = (TensorType((rows, 4), torch.float32) for rows in (1024, 8))
    taken = OpCall("aten.slice.Tensor", (whole, 0, 0, 8, 1), (part,))
    assert moved_bytes(taken) == 2 * part.size_bytes
    assert moved_bytes(OpCall("aten.neg", (whole,), (whole,))) == 2 * whole.size_bytes


def attention(queries: int, keys: int, offset: object, causal: bool = True, mask: object = None) -> OpCall:
    q, k = (TensorType((2, 4, rows, 8), torch.float16) for rows in (queries, keys))
    return OpCall("shardc.attention", (q, k, k, mask, causal, 1.0, offset), (q, None))


@pytest.mark.parametrize(
    ("queries", "keys", "offset"), [(6, 6, 0), (2, 6, 4), (3, 5, 1), (4, 2, 0), (3, 2, 7)]
)
def test_a_causal_mask_hides_what_it_hides(queries: int, keys: int, offset: int) -> None:
    rows, columns = torch.arange(queries)[:, None] + offset, torch.arange(keys)
    call = attention(queries, keys, offset)
    assert seen_part(call) == pytest.approx((columns <= rows).double().mean().item())
    assert computed_flops(call) == flops(call) * seen_part(call)


def test_what_no_causal_mask_hides() -> None:
    mask = TensorType((6, 6), torch.bool)
    calls = [attention(6, 6, 0, causal=False), attention(6, 6, 0, mask=mask), attention(3, 6, INT_VALUE)]
    assert [seen_part(call) for call in calls] == [1.0, 1.0, 1.0]
    assert seen_part(attention(3, 6, INT_VALUE), 1.5) == pytest.approx((2.5 + 3.5 + 4.5) / 18)
