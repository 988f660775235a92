"""Matmuls with ops before and after them: groups that become one kernel, and equal results."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from .conftest import assert_near

aten = torch.ops.aten


@pytest.fixture
def fuse(fuse: Any) -> Any:
    """With matmuls as contractions."""
    return partial(fuse, matmuls="generated")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6), (1, 6)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_a_linear_layer_with_its_activation_and_residual(
    fuse: Any, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    def f(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
        return functional.gelu(functional.linear(x, w, b)) + r

    arguments = [torch.randn(s, dtype=dtype) for s in (shape, (5, 6), (5,), (*shape[:-1], 5))]
    done = fuse(f, *arguments)
    assert done.kernels == [("aten.addmm", "aten.gelu", "aten.add.Tensor")] and done.stayed == []
    assert_near(done.results[0], f(*(a.double() for a in arguments)).to(dtype))
    assert str(done.module).count("linalg.generic") == 2


def test_eager_rounding_round_the_product(fuse: Any) -> None:
    def f(x: Tensor, w: Tensor, r: Tensor) -> Tensor:
        return (x @ w) * r + 1

    arguments = [torch.randn(s, dtype=torch.bfloat16) for s in ((4, 64), (64, 6), (4, 6))]
    done = fuse(f, *arguments, rounding="eager")
    assert len(done.kernels) == 1 and str(done.module).count("arith.truncf") == 3
    assert_near(done.results[0], f(*arguments))


def test_both_what_the_matmul_makes_and_what_follows_are_results(fuse: Any) -> None:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        h = x @ w
        return h, h.tanh()

    assert fuse(f, torch.randn(3, 4), torch.randn(4, 5)).kernels == [("aten.mm", "aten.tanh")]


def test_cheap_ops_before_a_matmul(fuse: Any) -> None:
    """Casts, scales and transposes of either operand are index maps and scalars of the contraction."""

    def f(x: Tensor, scale: Tensor, w: Tensor) -> Tensor:
        return (x * scale).t() @ w.to(torch.float32).t()

    done = fuse(f, torch.randn(6, 4), torch.randn(6, 1), torch.randn(5, 6, dtype=torch.bfloat16))
    assert len(done.kernels) == 1 and set(done.kernels[0]) == {"aten.mul.Tensor", "aten._to_copy", "aten.mm"}
    assert str(done.module).count("linalg.generic") == 1


@pytest.mark.parametrize("alpha", [1, 0.5])
@pytest.mark.parametrize("beta", [1, 2.0, 0])
def test_scaled_sums(fuse: Any, alpha: float, beta: float) -> None:
    """A beta of 0 hides a bias that is not a number."""
    bias = torch.full((5,), float("nan")) if beta == 0 else torch.randn(5)
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    done = fuse(lambda b, x, w: aten.addmm(b, x, w, beta=beta, alpha=alpha).relu(), bias, x, w)
    assert done.kernels == [("aten.addmm", "aten.relu")]
    assert_near(done.results[0], aten.addmm(bias, x, w, beta=beta, alpha=alpha).relu())


def test_batches(fuse: Any) -> None:
    q, k, mask = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8), torch.randn(4, 5)
    done = fuse(lambda q, k, mask: (q @ k.transpose(-1, -2)) * 0.3 + mask, q, k, mask)
    assert done.kernels == [("aten.bmm", "aten.mul.Scalar", "aten.add.Tensor")] and done.stayed == []
    done = fuse(lambda b, x, y: aten.baddbmm(b, x, y, beta=0.5).exp(), mask[None], q[0], k[0].mT)
    assert done.kernels == [("aten.baddbmm", "aten.exp")]


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 7, 1), (7, 1, 3), (3, 4, 1), (1, 5, 6)])
def test_dims_of_one(fuse: Any, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    done = fuse(lambda x, y, r: (x @ y) * r - 1, torch.randn(m, k), torch.randn(k, n), torch.randn(m, n))
    assert len(done.kernels) == 1 and done.stayed == []


def test_a_matrix_by_itself(fuse: Any) -> None:
    assert fuse(lambda x: (x @ x.t() + 1).exp(), torch.randn(4, 6)).stayed == []


def _why(done: Any) -> str:
    return " ".join(str(decision) for *_, decision in done.decisions)


def test_a_sum_over_rows_is_a_kernel_of_its_own(fuse: Any) -> None:
    done = fuse(lambda x, w: functional.softmax((x @ w) * 2, -1) + 1, torch.randn(4, 6), torch.randn(6, 5))
    assert len(done.kernels) == 2 and "a matmul and another reduction need two kernels" in _why(done)


def test_two_matmuls_are_two_kernels(fuse: Any) -> None:
    def f(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return functional.silu(x @ w) * (x @ v)

    done = fuse(f, torch.randn(4, 6), torch.randn(6, 5), torch.randn(6, 5))
    assert not any(kernel.count("aten.mm") > 1 for kernel in done.kernels)


def test_dear_ops_are_not_computed_while_packing(fuse: Any) -> None:
    done = fuse(lambda x, w: functional.gelu(x) @ w, torch.randn(4, 6), torch.randn(6, 5))
    assert done.stayed == ["aten.gelu", "aten.mm"] and "recomputed for each block" in _why(done)


def test_what_others_read_is_not_made_for_a_matmul_alone(fuse: Any) -> None:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y, y @ w

    done = fuse(f, torch.randn(4, 6), torch.randn(6, 5))
    assert done.kernels == [] and "other ops read it too" in _why(done)


def test_a_result_that_is_added_to_its_transpose(fuse: Any) -> None:
    done = fuse(lambda x, w: (lambda h: h + h.t())(x @ w), torch.randn(4, 6), torch.randn(6, 4))
    assert done.stayed == ["aten.mm", "aten.add.Tensor"] or done.kernels == []


def test_integers_stay(fuse: Any) -> None:
    done = fuse(
        lambda x, y: (x @ y) + 1, torch.ones(3, 3, dtype=torch.int64), torch.ones(3, 3, dtype=torch.int64)
    )
    assert "aten.mm" in done.stayed


def test_matmuls_stay_calls_by_default(fuse: Any) -> None:
    assert fuse(lambda x: ((x @ x) + 1).exp(), torch.randn(4, 4), matmuls="extern").stayed == ["aten.mm"]
