"""Costly values over few dims that loops over more dims read have loops of their own."""

from __future__ import annotations

from collections.abc import Callable

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


@pytest.mark.parametrize("function", [_scaled, _decayed, _per_row])
def test_values(function) -> None:
    check(function, torch.randn(200, 70) / 9, torch.randn(70))


def _once(function: Callable[..., Tensor]) -> list[tuple[object, ...]]:
    tensors = (torch.randn(200, 70), torch.randn(70))
    graph = make_fx(lambda *given: [function(*given)], tracing_mode="fake")(*tensors)
    module = import_graph(graph, "forward").module
    fuse_module(module)
    functions = extract_kernels(kernels_of(module)).body
    roots = [root for each in functions for root in roots_of(read_graph(each.operation)).items]
    return [tuple(root.sizes) for root in roots if root.once]


def test_what_rows_share_is_computed_once() -> None:
    assert _once(_scaled) == [(70,)]
    assert (70,) in _once(_decayed)


def test_what_a_row_shares_is_computed_in_the_row() -> None:
    assert _once(_per_row) == []
