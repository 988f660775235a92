"""ATen functions fused, compiled and run: against eager in f64, odd sizes among them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from shardc.backends.cpu.compile import build_library
from shardc.backends.torch.emit_graph import emit_graph
from shardc.dynamo.program import load
from shardc.frontend.graph.aot_graph import import_graph
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.runtime.kernels.library import Library

aten = torch.ops.aten


def check(f: Callable[..., Any], *tensors: Tensor, kernels: int | None = None) -> None:
    """Runs ``f`` as kernels, as many as ``kernels`` says, and compares it with eager in f64."""

    def flat(*args: Tensor) -> list[Tensor]:
        made = f(*args)
        return [made] if isinstance(made, Tensor) else list(made)

    module = import_graph(make_fx(flat, tracing_mode="fake")(*tensors), "forward").module
    fuse_module(module, lone=True)
    if kernels is not None:
        assert str(module).count('"kern.kernel"') == kernels, str(module)
    exact = flat(*(t.double() if t.is_floating_point() else t for t in tensors))
    text = emit_graph(module, list(range(len(exact))))
    found = load(text, Library(build_library(module)))(
        SimpleNamespace(device=torch.device("cpu")), list(tensors)
    )
    for got, wanted in zip(found, exact, strict=True):
        scale = max(1.0, wanted.abs().max().item()) if wanted.is_floating_point() else 0.0
        same = got.double() if wanted.is_floating_point() else got
        torch.testing.assert_close(same, wanted, rtol=2e-5, atol=8e-6 * scale, equal_nan=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [(1, 1, 1, 2), (2, 7, 3, 8), (1, 127, 2, 6), (1, 129, 1, 64)])
def test_rotary_embedding_and_its_gradient(size: tuple[int, ...], threads: int) -> None:
    batch, length, heads, width = size
    half, whole = width // 2, [batch, heads, length, width]

    def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x.view(batch, length, heads, width).transpose(1, 2)
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    def gradient(g: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        turned = g * sin
        left, right = turned[..., :half], turned[..., half:]
        back = aten.slice_backward(right, whole, 3, 0, half, 1) + aten.slice_backward(
            -left, whole, 3, half, width, 1
        )
        return (back + g * cos).transpose(1, 2).reshape(batch * length, heads * width)

    cos, sin = torch.randn(length, width), torch.randn(length, width)
    check(rotate, torch.randn(batch * length, heads * width), cos, sin, kernels=1)
    check(gradient, torch.randn(whole), cos, sin, kernels=1)


def test_parts_beside_other_results_reductions_and_transposed_reads(threads: int) -> None:
    def turned(x: Tensor) -> Tensor:
        return torch.cat((-x[..., 8:], x[..., :8]), -1)

    def normed(x: Tensor) -> tuple[Tensor, Tensor]:
        row = turned(x) * (x * x).mean(-1, keepdim=True).rsqrt()
        return row, row.sum(-1)

    def both(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        row = turned(x)
        return row, row.exp() * w.T

    x, w = torch.randn(9, 7, 16), torch.randn(16, 7)
    check(both, x, w, kernels=1)
    check(normed, x)
    check(lambda x: turned(x) + x.exp(), torch.randn(16), kernels=1)
    check(lambda x: aten.slice_backward(x[::2].exp(), [16], 0, 1, 16, 2), torch.randn(16), kernels=1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 1, 1), (2, 127, 3)])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_concatenations_of_what_kernels_make(shape: tuple[int, ...], dim: int) -> None:
    tensors = [torch.randn(shape) for _ in range(3)]
    check(lambda a, b, c: torch.cat([a * 2, b, c.exp()], dim), *tensors, kernels=1)


@pytest.mark.parametrize(
    "first, last, step", [(0, 4, 1), (4, 8, 1), (4, 2**63 - 1, 1), (0, 8, 2), (1, 8, 2), (0, 8, 1), (6, 8, 1)]
)
def test_gradients_of_slices(first: int, last: int, step: int) -> None:
    part = torch.randn(3, len(range(8)[first:last:step]), 5)
    check(lambda g: aten.slice_backward(g * 2, [3, 8, 5], 1, first, last, step) + 1, part, kernels=1)


def test_gradients_of_selections() -> None:
    check(lambda g: aten.select_backward(g * 2, [3, 8, 5], 1, -3) + 1, torch.randn(3, 5), kernels=1)


def test_created_tensors() -> None:
    def f(x: Tensor) -> Tensor:
        causal = torch.tril(torch.ones(7, 7, dtype=torch.bool), 1) & (
            torch.arange(7)[:, None] >= torch.arange(7)
        )
        return torch.where(causal, x.triu(-1), torch.full((7, 7), -3.0)) + torch.arange(3, 17, 2) * x

    check(f, torch.randn(7, 7), kernels=1)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("rows, classes", [(7, 129), (1, 1), (127, 5)])
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_of_cross_entropy(
    rows: int, classes: int, reduction: int, weighted: bool, threads: int
) -> None:
    target = torch.randint(classes, (rows,))
    target[rows // 2 + 1 :: 3] = -100
    weight = torch.rand(classes) + 0.5
    y = torch.randn(rows, classes).log_softmax(-1)
    loss, total = aten.nll_loss_forward(y, target, weight if weighted else None, reduction, -100)

    def f(g: Tensor, y: Tensor, target: Tensor, weight: Tensor, total: Tensor) -> Tensor:
        dy = aten.nll_loss_backward(g, y, target, weight if weighted else None, reduction, -100, total)
        return aten._log_softmax_backward_data(dy, y, -1, y.dtype)

    check(f, torch.randn_like(loss), y, target, weight, total, kernels=1)


def test_gradient_of_cross_entropy_of_images() -> None:
    y, target, weight = torch.randn(2, 5, 7, 3).log_softmax(1), torch.randint(5, (2, 7, 3)), torch.rand(5)
    for reduction in (0, 1):
        loss, total = aten.nll_loss2d_forward(y, target, weight, reduction, -100)

        def f(
            g: Tensor, y: Tensor, target: Tensor, weight: Tensor, total: Tensor, mode: int = reduction
        ) -> Tensor:
            return aten.nll_loss2d_backward(g, y, target, weight, mode, -100, total) * 2

        check(f, torch.randn_like(loss), y, target, weight, total, kernels=1)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "shape", [(4, 3, 5, 7), (2, 7, 127), (2, 16, 8, 8), (1, 1, 129), (7, 129), (129, 300)]
)
def test_batch_norm_and_its_gradient(shape: tuple[int, ...], threads: int) -> None:
    x, channels = torch.randn(shape) + 2, shape[1]
    w, b, mean, var = (
        torch.rand(channels),
        torch.randn(channels),
        torch.randn(channels),
        torch.rand(channels) + 0.1,
    )

    def forward(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        y, *statistics = aten._native_batch_norm_legit_functional(x, *rest, True, 0.1, 1e-5)
        return torch.relu(y), *statistics

    check(forward, x, w, b, mean, var, kernels=1)
    check(
        lambda x, *rest: aten._native_batch_norm_legit_no_training(x, *rest, 0.1, 1e-5)[0].exp(),
        x,
        w,
        b,
        mean,
        var,
        kernels=1,
    )
    _, saved, rstd = aten.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5)

    def backward(g: Tensor, x: Tensor, w: Tensor, saved: Tensor, rstd: Tensor) -> Any:
        return aten.native_batch_norm_backward(g * 2, x, w, None, None, saved, rstd, True, 1e-5, [True] * 3)

    check(backward, torch.randn(shape), x, w, saved, rstd, kernels=1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "shape, groups", [((4, 6, 5, 7), 3), ((2, 16, 8, 8), 4), ((3, 6, 17), 1), ((3, 6, 17), 6)]
)
def test_group_norm_and_its_gradient(shape: tuple[int, ...], groups: int, threads: int) -> None:
    x, w, b = torch.randn(shape) + 2, torch.rand(shape[1]), torch.randn(shape[1])
    sizes = (*shape[:2], x[0, 0].numel(), groups)

    def forward(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        y, mean, rstd = aten.native_group_norm(x * 2, w, b, *sizes, 1e-5)
        return torch.relu(y), mean, rstd

    check(forward, x, w, b, kernels=1)
    _, mean, rstd = aten.native_group_norm(x, w, b, *sizes, 1e-5)

    def backward(g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor) -> Any:
        return aten.native_group_norm_backward(g * 2, x, mean, rstd, w, *sizes, [True] * 3)

    check(backward, torch.randn(shape), x, mean, rstd, w)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", [(12, 16), (129, 127), (1, 7), (7, 1)])
def test_column_sums_beside_rows(shape: tuple[int, int], threads: int) -> None:
    g, x, w = torch.randn(shape), torch.randn(shape), torch.randn(shape[1])

    def bias(g: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        dx = aten.gelu_backward(g, x)
        return dx, dx.sum(0)

    def residual(g: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        return g + x, F.softmax(g + x, 1), F.softmax(g + x, 1).sum(0)

    check(bias, g, x, kernels=1)
    check(residual, g, x, kernels=1)
    if shape[1] > 1:  # else the gradient is 0 times a large number
        _, mean, rstd = aten.native_layer_norm(x, [shape[1]], w, w, 1e-5)

        def norm(g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor) -> tuple[Tensor, ...]:
            dx, dw, db = aten.native_layer_norm_backward(g, x, [shape[1]], mean, rstd, w, w, [True] * 3)
            return dx + x, dw, db

        check(norm, g, x, mean, rstd, w, kernels=1)


def test_softmax_of_rows_that_are_all_masked() -> None:
    x = torch.randn(5, 7)
    x[2], x[3, 1], x[4, 2] = -torch.inf, torch.nan, torch.inf
    check(lambda x: aten._safe_softmax(x, -1) * 2, x, kernels=1)


@pytest.mark.parametrize("shape", [(4, 3, 5, 7), (2, 2, 3, 5)])
def test_two_sums_over_the_same_dims_of_a_tensor_with_more(shape: tuple[int, ...]) -> None:
    """The loops of both are one, though each finds its elements through a reshaped view."""
    check(lambda x: x.var((0, 2, 3)) * 1.5, torch.randn(shape), kernels=1)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shape", [(1, 7), (127, 129), (300, 65), (64, 128)])
def test_transposed_reads(shape: tuple[int, int], threads: int) -> None:
    """A piece of what is read across the rows is turned first; the mask is bytes."""

    def f(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask.t(), x + y.t().exp(), y.t())

    check(f, torch.randn(shape), torch.randn(shape[::-1]), torch.rand(shape[::-1]) > 0.5, kernels=1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("classes", [1, 7, 127, 129])
@pytest.mark.parametrize("beside", [64, 127], ids=str)
def test_softmax_over_a_middle_dim(classes: int, beside: int, threads: int) -> None:
    x, y = torch.randn(3, classes, beside), torch.randn(3, classes, beside)
    check(lambda x: F.softmax(x * 2, 1) + 1, x, kernels=1)
    check(lambda x, y: aten._log_softmax_backward_data(x, F.log_softmax(y, 1), 1, x.dtype), x, y, kernels=1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", [(2, 127), (129, 65), (300, 64)])
def test_what_sums_over_the_first_dim_are_spread_over(shape: tuple[int, int], threads: int) -> None:
    def standardized(x: Tensor) -> tuple[Tensor, Tensor]:
        var, mean = torch.var_mean(x, 0)
        return (x - mean) / (var + 0.1).sqrt(), mean

    check(standardized, torch.randn(shape), kernels=1)
    check(lambda x: F.softmax(x * 2, 0) + 1, torch.randn(shape), kernels=1)
    check(lambda x, y: x - (x * y).sum(0) * y, torch.randn(shape), torch.randn(shape), kernels=1)
