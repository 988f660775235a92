"""Compiled kernels that read slices of what they compute, or reduce short rows, against eager in f64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from sliced_functions import ROWS, SLICES, X
from test_lowered_graphs import check

from shardc.runtime.errors import IndexOutOfRange

FUNCTIONS = SLICES | ROWS


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name: str, threads: int) -> None:
    check(FUNCTIONS[name], X)
    check(FUNCTIONS[name], torch.randn(33, 20, 4))


@pytest.mark.parametrize("count", [70_000, 65_536])
def test_many_indices_are_checked(count: int, threads: int) -> None:
    torch._dynamo.reset()
    found = torch.compile(lambda w, i: F.relu(w[i]) * 2, backend="shardc", dynamic=False)
    table, index = torch.randn(300, 3), torch.randint(-300, 300, (count,))
    torch.testing.assert_close(found(table, index), F.relu(table[index]) * 2)
    for at in (0, count - 1):
        bad = index.clone()
        bad[at] = 300
        with pytest.raises(IndexOutOfRange, match="index 300 is out of bounds for dimension 0 with size 300"):
            found(table, bad)
