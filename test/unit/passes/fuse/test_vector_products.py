"""Products of a matrix with a vector: sums in kernels, if ops compute the matrix or its rows are short."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor


@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (lambda x, v: torch.mv(x.sigmoid(), v) + 1, [(6, 70), (70,)]),
        (lambda x, v: torch.mm(x.sigmoid(), v) + 1, [(6, 70), (70, 1)]),
        (lambda x, v: torch.mm(v, x.sigmoid()) + 1, [(70, 6), (1, 70)]),
        (lambda x, v: torch.bmm(x.sigmoid(), v).tanh(), [(3, 6, 70), (3, 70, 1)]),
        (lambda x, v: torch.bmm(v, x.sigmoid()).tanh(), [(3, 70, 6), (3, 1, 70)]),
        (lambda x, v: torch.bmm(x.sigmoid().view(3, 6, 70), v).tanh(), [(18, 70), (3, 70, 1)]),
        (lambda x, v: torch.addmm(v.new_ones(()), x.sigmoid(), v), [(6, 70), (70, 1)]),
        (lambda x, v: torch.mm(x, v).tanh(), [(6, 1), (1, 70)]),
        (lambda x, v: torch.mm(x, v).tanh(), [(60, 20), (20, 1)]),
    ],
)
def test_one_kernel(f: Any, shapes: list[tuple[int, ...]], fuse: Any) -> None:
    tensors = list(map(torch.randn, shapes))
    done = fuse(f, *tensors)
    assert len(done.kernels) == 1 and done.stayed == []
    torch.testing.assert_close(done.results[0], f(*tensors))


@pytest.mark.parametrize("form", ["extern", "generated"])
def test_products_in_kernels_read_it_too(form: str, fuse: Any) -> None:
    """The form of matmuls concerns products of matrices; a product of a matmul's result stays one, too."""

    def f(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        made = torch.mm(x, w)
        return torch.mm(made, v) + torch.mm(made.tanh(), v)

    tensors = torch.randn(8, 40), torch.randn(40, 40), torch.randn(40, 1)
    done = fuse(f, *tensors, matmuls=form)
    assert any("aten.tanh" in kernel and "aten.mm" in kernel for kernel in done.kernels)
    torch.testing.assert_close(done.results[0], f(*tensors))


def test_a_matrix_in_memory_with_long_rows_stays_a_call(fuse: Any) -> None:
    done = fuse(lambda x, v: torch.mm(x, v).tanh().exp(), torch.randn(6, 70), torch.randn(70, 1))
    assert done.stayed == ["aten.mm"]
    done = fuse(lambda x, v: torch.mv(x, v).tanh().exp(), torch.randn(6, 70), torch.randn(70))
    assert done.stayed == ["aten.mv"]


def test_bf16_is_summed_in_f32(fuse: Any) -> None:
    x, v = torch.randn(6, 300).bfloat16(), torch.randn(300, 1).bfloat16()
    done = fuse(lambda x, v: torch.mm(x * 2, v) * 2, x, v)
    assert len(done.kernels) == 1
    exact = (x.double() * 2) @ v.double() * 2
    torch.testing.assert_close(done.results[0].double(), exact, rtol=1e-2, atol=1e-2)


def test_equal_calls_with_and_without_a_sum_have_bodies_of_their_own(fuse: Any) -> None:
    """Of two equal calls, the one whose matrix is computed is a sum, the other one a contraction."""

    def f(x: Tensor, y: Tensor, v: Tensor) -> list[Tensor]:
        return [torch.mm(x.sigmoid(), v).exp(), torch.mm(y, v).exp()]

    tensors = torch.randn(6, 70), torch.randn(6, 70), torch.randn(70, 1)
    done = fuse(f, *tensors, matmuls="generated")
    for got, wanted in zip(done.results, f(*tensors), strict=True):
        torch.testing.assert_close(got, wanted)
    assert len(done.kernels) == 2
