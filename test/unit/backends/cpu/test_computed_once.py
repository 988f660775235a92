"""Costly values over few dims that loops over more dims read have loops of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_lowered_graphs import check
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from shardc.backends.body.extract import extract_kernels
from shardc.backends.body.read_graph import read_graph
from shardc.backends.cpu.emit.computed_once import roots_of
from shardc.frontend.graph.aot_graph import import_graph
from shardc.passes.fuse.kern_fuse import fuse_module, kernels_of


def _scaled(x: Tensor, s: Tensor) -> Tensor:
    return torch.softmax(x * F.softplus(s), -1)


def _decayed(x: Tensor, s: Tensor) -> Tensor:
    """A rate for each column and an age for each row, summed over the middle."""
    weight = torch.exp(-F.softplus(s) * torch.log1p(x[:, :1].abs())).view(-1, 10, s.shape[0])
    return (weight * x.view(-1, 10, s.shape[0])).sum(1)


def _per_row(x: Tensor, s: Tensor) -> Tensor:
    return x * torch.exp(x.sum(1, keepdim=True)) + s


def _powers(x: Tensor, s: Tensor) -> list[Tensor]:
    """Rates for each of 16 columns, and their powers for each row: both are results."""
    rate = F.softplus(x)
    return [rate, torch.exp(-rate[..., None] * s[:16])]


def _interleaved(x: Tensor, s: Tensor) -> list[Tensor]:
    """Even elements, and odd ones that follow them: both are results."""
    even = torch.tanh(x + s) * torch.sigmoid(x)
    return [even, torch.stack([even, even * s + x], 1)]


def _normed(x: Tensor, s: Tensor) -> list[Tensor]:
    scale = torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6)
    return [scale, x[:, :16] * scale * s[:16], x * scale]


@pytest.mark.parametrize("function", [_scaled, _decayed, _per_row, _powers, _interleaved, _normed])
def test_values(function) -> None:
    check(function, torch.randn(200, 70) / 9, torch.randn(70))


def _listed(made: Tensor | list[Tensor]) -> list[Tensor]:
    return made if isinstance(made, list) else [made]


def _once(function: Callable[..., Any]) -> list[tuple[object, ...]]:
    tensors = (torch.randn(200, 70), torch.randn(70))
    graph = make_fx(lambda *given: _listed(function(*given)), tracing_mode="fake")(*tensors)
    module = import_graph(graph, "forward").module
    fuse_module(module)
    functions = extract_kernels(kernels_of(module)).body
    roots = [root for each in functions for root in roots_of(read_graph(each.operation)).items]
    return [tuple(root.sizes) for root in roots if root.once]


def test_what_rows_share_is_computed_once() -> None:
    assert _once(_scaled) == [(70,)]
    assert (70,) in _once(_decayed)


def test_results_are_read_where_more_elements_need_them() -> None:
    assert _once(_powers) == [(200 * 70,)]
    assert _once(_interleaved) == [(200, 70)]
    assert _once(_normed) == []


def test_what_a_row_shares_is_computed_in_the_row() -> None:
    assert _once(_per_row) == []
