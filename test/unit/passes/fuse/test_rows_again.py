"""Rows with expensive ops that several other rows read: they are computed once, by a kernel of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import shardc.dynamo.program as program


def _kernels(function: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch, *given: Tensor) -> int:
    """Return the number of kernels of a program whose values are eager's."""
    texts: list[str] = []
    load = program.load
    monkeypatch.setattr(program, "load", lambda text, *rest: texts.append(text) or load(text, *rest))
    torch._dynamo.reset()
    torch.testing.assert_close(
        torch.compile(function, backend="shardc", dynamic=False)(*given), function(*given)
    )
    return texts[-1].count("= kernel(")


def cross_entropies(x: Tensor, y: Tensor) -> Tensor:
    """Cross entropies of all pairs of two sets of distributions: [n, b, k], [m, b, k]."""
    return -(torch.softmax(x, -1)[:, None] * torch.log_softmax(y, -1)).sum(-1)


def test_a_softmax_of_few_rows_is_not_computed_for_each_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.randn(2, 20, 500), torch.randn(4, 20, 500)
    assert _kernels(cross_entropies, monkeypatch, x, y) == 3


def test_small_rows_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.randn(2, 4, 50), torch.randn(4, 4, 50)
    assert _kernels(cross_entropies, monkeypatch, x, y) == 1


def test_rows_that_one_row_reads_are_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.randn(80, 500), torch.randn(80, 500)
    assert (
        _kernels(lambda x, y: (torch.softmax(x, -1) * torch.log_softmax(y, -1)).sum(-1), monkeypatch, x, y)
        == 1
    )
