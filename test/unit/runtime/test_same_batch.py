"""Hashes that differ where weights and batches do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from shardc.runtime.same_batch import _hash, _hash_weights


def changed(values: Tensor, *places: int) -> Tensor:
    """With the elements at these places in each other's, or one of them another number."""
    made = values.clone()
    if len(places) == 1:
        made[places[0]] += 1
    else:
        made[list(places)] = values[list(reversed(places))]
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.uint8, torch.int64])
@pytest.mark.parametrize("count", [1, 3, 5000, 100_001])
def test_each_element_of_weights_counts(dtype: torch.dtype, count: int) -> None:
    values = (torch.arange(count) % 97).to(dtype)
    found = _hash_weights(values)
    assert found == _hash_weights(values.clone())
    for place in {0, count // 2, count - 1}:
        assert _hash_weights(changed(values, place)) != found, place


def test_where_weights_lie_in_memory_does_not_count() -> None:
    values = torch.randn(40, 30)
    assert _hash_weights(values.t()) == _hash_weights(values.t().contiguous())
    assert _hash_weights(torch.cat([torch.zeros(1), values.flatten()])[1:]) == _hash_weights(values.flatten())


def test_the_order_of_small_weights_counts() -> None:
    values = torch.randn(1000)
    assert _hash_weights(changed(values, 3, 5)) != _hash_weights(values)


def test_a_sample_of_a_batch_sees_small_whole_numbers() -> None:
    """Pixels as f32: the low bytes of all their elements are zeros."""
    pixels = torch.randint(0, 256, (100_000,), generator=torch.Generator().manual_seed(0)).float()
    other = torch.randint(0, 256, (100_000,), generator=torch.Generator().manual_seed(1)).float()
    assert _hash({"x": pixels}, whole=False) != _hash({"x": other}, whole=False)
