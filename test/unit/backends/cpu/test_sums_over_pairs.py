"""Sums over pairs of rows: values, and which loops run in blocks of columns."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from shardc.backends.cpu.emit import nests
from shardc.diagnostics.dynamo import ShardcFallbackWarning

SUMS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "distances of all pairs": (lambda x: (x[:, None] - x).abs().sum((0, 1)), 1),
    "largest distance": (lambda x: (x[:, None] - x).abs().amax((0, 1)), 1),
    "distances and products": (lambda x: _both(x[:, None] - x), 1),
    "triples": (lambda x: (x[:, None, None] * x[:, None] - x).sum((0, 1, 2)), 1),
    "weights for pairs": (lambda x: ((x[:, None] - x).abs() * x[:, :9, None]).sum((0, 1)), 1),
    "rows that are read once": (lambda x: (x[:8].view(2, 4, -1) * x[:4]).sum((0, 1)), 0),
    "one dim of the pairs": (lambda x: (x[:, None] - x).abs().sum(0), 0),
    "all rows": (lambda x: x.abs().sum(0), 0),
    "columns, too": (lambda x: (x[:, None] - x).abs().sum((0, 1, 2)), 0),
}


def _both(x: Tensor) -> Tensor:
    return x.abs().sum((0, 1)) + (x * x).sum((0, 1))


@pytest.mark.parametrize("columns", [255, 1000, 4097])
@pytest.mark.parametrize("name", SUMS)
def test_values(name: str, columns: int, threads: int) -> None:
    function, _ = SUMS[name]
    torch._dynamo.reset()
    warnings.simplefilter("error", ShardcFallbackWarning)
    x = torch.randn(9, columns)
    exact = function(x.double())
    found = torch.compile(function, backend="shardc", dynamic=False)(x)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5 * float(exact.abs().max()))


@pytest.mark.parametrize("name", SUMS)
def test_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[object] = []
    choose = nests._block_of_sums
    monkeypatch.setattr(nests, "_block_of_sums", lambda *a: found.append(choose(*a)) or found[-1])
    function, count = SUMS[name]
    torch._dynamo.reset()
    torch.compile(function, backend="shardc", dynamic=False)(torch.randn(9, 4099))
    assert sum(block is not None for block in found) == count
