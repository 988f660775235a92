"""``as_strided`` of whole dense tensors as views of elements; other strided views stay."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from shardc.frontend.graph.strided_views import drop_strided_views

aten = torch.ops.aten
STRIDED = (aten.as_strided.default, aten.as_strided_scatter.default)


def traced(function: Callable[..., Tensor], *inputs: Tensor) -> GraphModule:
    graph = make_fx(function, tracing_mode="fake")(*inputs)
    drop_strided_views(graph)
    graph.recompile()
    return graph


def stays(graph: GraphModule) -> bool:
    return any(node.target in STRIDED for node in graph.graph.nodes)


def dense(size: tuple[int, ...], order: tuple[int, ...]) -> Tensor:
    """Return numbers with the dims in this order of memory."""
    numbers = torch.arange(torch.Size(size).numel()).float().reshape([size[d] for d in order])
    return numbers.permute([order.index(d) for d in range(len(size))])


LAYOUTS = [
    ((4, 6), (0, 1)),
    ((4, 6), (1, 0)),
    ((2, 3, 4), (2, 0, 1)),
    ((2, 3, 2, 2), (0, 2, 3, 1)),
    ((24,), (0,)),
    ((1, 24, 1), (2, 1, 0)),
    ((3, 1, 8), (2, 1, 0)),
]


@pytest.mark.parametrize("new", LAYOUTS, ids=str)
@pytest.mark.parametrize("old", LAYOUTS, ids=str)
def test_views_of_dense_tensors(
    old: tuple[tuple[int, ...], tuple[int, ...]], new: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    x, target = dense(*old), dense(*new)
    graph = traced(lambda x: x.as_strided(target.shape, target.stride()), x)
    assert not stays(graph)
    assert torch.equal(graph(x), x.as_strided(target.shape, target.stride()))
    y = torch.randn(target.shape)
    graph = traced(lambda x, y: torch.as_strided_scatter(x, y, target.shape, target.stride(), 0), x, y)
    assert not stays(graph)
    assert torch.equal(graph(x, y), torch.as_strided_scatter(x, y, target.shape, target.stride(), 0))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.as_strided((4, 3), (6, 2)),
        lambda x: x.as_strided((6, 6), (1, 3)),
        lambda x: x.as_strided((4, 6), (0, 1)),
        lambda x: x.as_strided((3, 6), (6, 1), 6),
        lambda x: x[1:].as_strided((4, 6), (6, 1), 0),
        lambda x: x[:, ::2].as_strided((4, 3), (3, 1)),
        lambda x: torch.as_strided_scatter(x, x[:2], (2, 6), (6, 1), 12),
    ],
    ids=["gaps", "overlaps", "repeats", "a part", "more", "of a part", "writes a part"],
)
def test_other_views_of_memory_stay(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(4, 6)
    graph = traced(function, x)
    assert stays(graph)
    assert torch.equal(graph(x), function(x))


def test_an_empty_tensor() -> None:
    x = torch.randn(0, 6)
    graph = traced(lambda x: x.as_strided((0, 2), (2, 1)), x)
    assert graph(x).shape == (0, 2)


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
@pytest.mark.parametrize("sizes", [(4, 16, 8, 8), (1, 1, 3, 3), (2, 5, 1, 1)], ids=str)
def test_average_pooling_to_one_pixel_compiles(sizes: tuple[int, ...], last: bool) -> None:
    pooled = nn.Sequential(nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Tanh())
    x = torch.randn(sizes)
    x = (x.to(memory_format=torch.channels_last) if last else x).requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = torch.compile(pooled, backend="shardc")(x)
        (gradient,) = torch.autograd.grad(found.sum(), x)
    y = x.detach().double().requires_grad_()
    exact = pooled(y)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        gradient.double(), torch.autograd.grad(exact.sum(), y)[0], rtol=1e-5, atol=1e-6
    )


def test_pooling_over_time_of_a_transposed_sequence_compiles() -> None:
    x = torch.randn(2, 9, 16, requires_grad=True)

    def pooled(x: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(x.transpose(1, 2), 1).flatten(1).sin()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = torch.compile(pooled, backend="shardc")(x)
        (gradient,) = torch.autograd.grad(found.sum(), x)
    torch.testing.assert_close(found, pooled(x))
    torch.testing.assert_close(gradient, torch.autograd.grad(pooled(x).sum(), x)[0])
