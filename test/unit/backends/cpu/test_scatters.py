"""Compiled sums at computed indices, against f64: equal for any number of threads, and with errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_lowered_graphs import check
from torch import Tensor

from shardc.runtime.errors import IndexOutOfRange

aten = torch.ops.aten
SIZES = [1, 7, 127, 129, 300]


def gradient(rows: int, padding: int = -1) -> Callable[..., Tensor]:
    return lambda u, i: aten.embedding_dense_backward(u, i, rows, padding, False)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", SIZES)
@pytest.mark.parametrize("rows", [1, 5, 127, 300])
def test_gradients_of_embeddings(width: int, rows: int, threads: int) -> None:
    index = torch.randint(rows, (3, 43))
    updates, other = torch.randn(3, 43, width), torch.randn(rows, width)
    check(gradient(rows), updates, index, kernels=1)
    check(gradient(rows, 0), updates, index.to(torch.int32), kernels=1)
    check(lambda u, i, t: gradient(rows)(u, i) + t, updates, index, other, kernels=1)
    check(lambda u, i, t: t * 2 + gradient(rows, 0)(u, i), updates, index, other, kernels=2)


def test_the_gradient_of_one_index_among_many_rows(threads: int) -> None:
    check(gradient(5000), torch.randn(1, 40), torch.tensor([4999]), kernels=1)
    check(gradient(5000), torch.randn(2000, 40), torch.full((2000,), 7), kernels=1)


SCATTERS: dict[str, Callable[..., Any]] = {
    "rows": lambda t, i, u: aten.index_put(t, [i], u, True),
    "rows from the end": lambda t, i, u: aten.index_put(t, [i - 6], u, True),
    "rows of what is made": lambda t, i, u: aten.index_put(t * 2, [i], u, True),
    "a middle dim": lambda t, i, u: aten.index_put(
        t, [None, i[:, 0]], u.flatten(0, 1).transpose(0, 1)[:, :3], True
    ),
    "index_add": lambda t, i, u: aten.index_add(t, 1, i[0], u.flatten(0, 1).transpose(0, 1)[:, 3:5]),
    "elements": lambda t, i, u: aten.index_put(
        t.flatten(1), [None, i.flatten()], u.flatten(1)[:, :6].repeat(2, 1), True
    ),
    "a vector": lambda t, i, u: aten.index_add(t[:, 0, 0] * 1, 0, i.view(-1), u[..., 0, 0].reshape(-1)),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32], ids=str)
def test_scatters(name: str, dtype: torch.dtype, threads: int) -> None:
    index = torch.tensor([[0, 4], [2, 1], [4, 4]])
    check(
        SCATTERS[name], (torch.randn(6, 6, 33) * 9).to(dtype), index, (torch.randn(3, 2, 6, 33) * 9).to(dtype)
    )


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_gradients_of_interpolation(mode: str, threads: int) -> None:
    """Sums at rows and columns of an image, in kernels."""

    def resized(x: Tensor) -> Tensor:
        return F.interpolate(x, (9, 11), mode=mode)

    x, grad = torch.randn(3, 17, 5, 7, requires_grad=True), torch.randn(3, 17, 9, 11)
    found = torch.autograd.grad(torch.compile(resized, backend="shardc", dynamic=False)(x), x, grad)[0]
    exact = x.detach().double().requires_grad_()
    wanted = torch.autograd.grad(resized(exact), exact, grad.double())[0]
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_16_bits_are_added_up_in_f32(dtype: torch.dtype, threads: int) -> None:
    """To within one rounding, where ATen rounds each of 2000 sums."""
    updates, index, other = (
        torch.rand(2000, 65).to(dtype),
        torch.arange(2000) % 3,
        torch.randn(9, 65).to(dtype),
    )
    compiled = torch.compile(lambda u, i, t: gradient(9)(u, i) + t, backend="shardc")
    exact = other.double().index_add(0, index, updates.double())
    error = (compiled(updates, index, other).double() - exact).abs()
    assert (error <= exact.abs() * torch.finfo(dtype).eps / 2 * 1.01 + 1e-6).all()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("rows", [3, 1000])
def test_numbers_do_not_depend_on_threads(rows: int) -> None:
    """And are those of ATen, which adds in the same order."""
    updates, index = torch.randn(3000, 700), torch.randint(rows, (3000,))
    compiled, before = torch.compile(gradient(rows), backend="shardc"), torch.get_num_threads()
    found = []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        found.append(compiled(updates, index))
    torch.set_num_threads(before)
    for other in (*found[1:], gradient(rows)(updates, index)):
        assert torch.equal(found[0], other)


def test_nan_and_infinity_stay_in_their_rows(threads: int) -> None:
    updates = torch.ones(4, 2000)
    updates[0], updates[1, 3], updates[2] = torch.nan, torch.inf, -0.0
    compiled = torch.compile(gradient(5), backend="shardc")
    found, index = compiled(updates, torch.arange(4)), torch.arange(4)
    torch.testing.assert_close(found, gradient(5)(updates, index), rtol=0, atol=0, equal_nan=True)
    assert not found[2].signbit().any()


def test_the_gradient_passes_over_indices_out_of_range(threads: int) -> None:
    """As ATen's: forward raises for them."""
    index, updates = torch.tensor([0, 9, -1, 3]), torch.randn(4, 2000)
    compiled = torch.compile(gradient(5), backend="shardc")
    torch.testing.assert_close(compiled(updates, index), gradient(5)(updates, index), rtol=0, atol=0)


def test_a_call_raises_for_an_index_out_of_range(threads: int) -> None:
    table, good, updates = torch.randn(9, 1000), torch.zeros(20, dtype=torch.int64), torch.randn(20, 1000)
    compiled = torch.compile(lambda t, i, u: aten.index_put(t, [i], u, True), backend="shardc")
    bad = good.clone()
    bad[7] = 9
    before = table.clone()
    with pytest.raises(IndexOutOfRange, match="index 9 is out of bounds for dimension 0 with size 9"):
        compiled(table, bad, updates)
    torch.testing.assert_close(table, before, rtol=0, atol=0)
    torch.testing.assert_close(
        compiled(table, good - 9, updates), before.index_put((good,), updates, accumulate=True)
    )


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(50, 96, padding_idx=2)

    def forward(self, index: Tensor) -> Tensor:
        logits = F.linear(self.table(index).tanh(), self.table.weight)
        return F.cross_entropy(logits.flatten(0, -2), index.flatten())


def test_a_tied_weight(threads: int) -> None:
    """Its gradient through both uses, in two calls: what the first gave is not written to by the second."""
    model, index = Tied(), torch.randint(50, (4, 9))
    compiled, grads = torch.compile(model, backend="shardc"), []
    for given in (index, index.flip(0) // 2):
        wanted = torch.autograd.grad(model(given), model.table.weight)[0]
        grads.append((torch.autograd.grad(compiled(given), model.table.weight)[0], wanted))
    for found, wanted in grads:
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(1)
def test_symbolic_sizes(threads: int) -> None:
    compiled = torch.compile(lambda u, i: gradient(11)(u, i) * 2, backend="shardc", dynamic=True)
    added = torch.compile(lambda u, i, t: t + gradient(11)(u, i), backend="shardc", dynamic=True)
    for batch, length, width in ((5, 7, 129), (1, 129, 64), (64, 33, 300)):
        updates, index, table = (
            torch.randn(batch, length, width),
            torch.randint(11, (batch, length)),
            torch.randn(11, width),
        )
        torch.testing.assert_close(compiled(updates, index), gradient(11)(updates, index) * 2)
        torch.testing.assert_close(added(updates, index, table), gradient(11)(updates, index) + table)
