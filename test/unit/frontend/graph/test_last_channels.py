"""Group norms of tensors with channels last: values and gradients of f64, strides of eager."""

from __future__ import annotations

from typing import cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from shardc.frontend.graph.last_channels import last_channels_table

LAST = torch.channels_last


@pytest.mark.parametrize(
    ("shape", "groups"),
    [((2, 24, 5, 7), 6), ((3, 16, 4, 4), 1), ((1, 32, 3, 1), 16), ((2, 8, 3, 4, 5), 4), ((2, 6, 5, 5), 6)],
)
@pytest.mark.parametrize("affine", [True, False])
def test_values_and_gradients(shape: tuple[int, ...], groups: int, affine: bool) -> None:
    torch.manual_seed(0)
    form = LAST if len(shape) == 4 else torch.channels_last_3d
    given = [3 + torch.randn(shape).contiguous(memory_format=form)]
    given += list(torch.randn(2, shape[1])) * affine

    def function(x: Tensor, *weights: Tensor) -> Tensor:
        return F.silu(F.group_norm(x, groups, *weights))

    leaves = [t.clone().requires_grad_() for t in given]
    exact = [t.double().requires_grad_() for t in given]
    torch._dynamo.reset()
    found, wanted = torch.compile(function, backend="shardc", dynamic=False)(*leaves), function(*exact)
    assert found.stride() == function(*given).stride()
    seed = torch.randn(shape)
    gradients = torch.autograd.grad(found, leaves, seed)
    true = torch.autograd.grad(wanted, exact, seed.double())
    for got, right in zip((found, *gradients), (wanted, *true), strict=True):
        torch.testing.assert_close(got.double(), right, rtol=1e-4, atol=1e-4)


def test_statistics_and_one_gradient_alone() -> None:
    table = last_channels_table()
    forward, backward = (
        table[op]
        for op in (
            torch.ops.aten.native_group_norm.default,
            torch.ops.aten.native_group_norm_backward.default,
        )
    )
    x, grad = (torch.randn(2, 8, 3, 5).contiguous(memory_format=LAST) for _ in range(2))
    weight, bias = torch.randn(2, 8)
    arguments = (2, 8, 15, 4)
    found = cast(tuple[Tensor, ...], forward(x, weight, bias, *arguments, 1e-5))
    for got, right in zip(found, torch.native_group_norm(x, weight, bias, *arguments, 1e-5), strict=True):
        torch.testing.assert_close(got, right, rtol=1e-5, atol=1e-5)
    # ATen's function may crash if only some gradients are asked for
    true = torch.ops.aten.native_group_norm_backward(grad, x, *found[1:], weight, *arguments, [True] * 3)
    for mask in ([True, False, False], [False, True, True]):
        made = cast(tuple[Tensor, ...], backward(grad, x, *found[1:], weight, *arguments, mask))
        for got, right, is_asked in zip(made, true, mask, strict=True):
            assert (got is not None) == is_asked
            if got is not None:
                torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-4)


def test_a_group_that_is_not_finite_leaves_the_others() -> None:
    x = torch.randn(2, 8, 4, 4).contiguous(memory_format=LAST)
    x[0, 1, 2, 3] = torch.inf

    def function(x: Tensor) -> Tensor:
        return F.group_norm(x, 4)

    torch._dynamo.reset()
    found = torch.compile(function, backend="shardc", dynamic=False)(x)
    torch.testing.assert_close(found, function(x), equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "x", [torch.randn(2, 8, 4, 4), torch.randn(2, 80, 4, 4).contiguous(memory_format=LAST)]
)
def test_other_orders_and_large_groups_are_left_to_kernels(x: Tensor) -> None:
    norm = last_channels_table()[torch.ops.aten.native_group_norm.default]
    n, c = x.shape[:2]
    assert norm(x, None, None, n, c, 16, 4 if c == 8 else 2, 1e-5) is NotImplemented
