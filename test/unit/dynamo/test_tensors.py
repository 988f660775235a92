"""Tensors out of the ordinary: empty, complex, overlapping, of narrow integers, sharing memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from shardc.diagnostics.dynamo import ShardcFallbackWarning

from .conftest import assert_identical

Wrap = Callable[..., Any]


def _gradients(f: Callable[..., Any], *args: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    inputs = [x.detach().requires_grad_() for x in args]
    out = f(*inputs)
    return out.detach(), torch.autograd.grad(
        torch.view_as_real(out).sum() if out.is_complex() else out.sum(), inputs
    )


def test_no_elements(compiled: Wrap) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([x @ y, torch.ones(2, y.shape[1])])
        return joined.softmax(-1).sum(0) + x.exp().sum() + y.flatten().mean(0)

    for x, y in ((torch.randn(0, 4), torch.randn(4, 3)), (torch.randn(2, 0), torch.randn(0, 3))):
        assert_identical(_gradients(compiled(f, dynamic=False), x, y), _gradients(f, x, y))


def test_no_elements_returned_as_views(compiled: Wrap) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.t(), x[0:0], x.reshape(-1), x.sum(0), x.amax(1), x > 0, x.int().cumsum(1)

    x = torch.randn(0, 3)
    assert_identical(compiled(f)(x), f(x))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers_with_gradients(compiled: Wrap, dtype: torch.dtype) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x.mH @ y + x.conj().sum() * 2.0
        return torch.fft.ifft(torch.fft.fft(z) * y.exp()) / z.abs()

    x, y = torch.randn(3, 3, dtype=dtype), torch.randn(3, 3, dtype=dtype)
    assert_identical(_gradients(compiled(f), x, y), _gradients(f, x, y))


def test_real_and_imaginary_parts(compiled: Wrap) -> None:
    """Rotary embeddings as Llama's first code wrote them; parts are views of complex memory.
    The gradient multiplies by 1j.
    """

    def f(q: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        turned = torch.view_as_complex(q.unflatten(-1, (-1, 2))) * torch.polar(
            torch.ones_like(angles), angles
        )
        return torch.view_as_real(turned).flatten(-2) + (turned.real * turned.imag).repeat_interleave(2, -1)

    q, angles = torch.randn(2, 3, 8), torch.randn(3, 4)
    assert_identical(_gradients(compiled(f), q, angles), _gradients(f, q, angles))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_complex_numbers_in_the_program(compiled: Wrap, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        full = torch.full((2,), 0.1j, dtype=dtype.to_complex())
        return x * 2j, 1 - 0.1j - x, x / 3j, x.sub(2j, alpha=2), torch.full((2, 3), 1 + 2j), full * x.sum()

    x = torch.randn(shape, dtype=dtype)
    assert_identical(compiled(f)(x), f(x))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers_in_makers_pads_and_fills(compiled: Wrap, dtype: torch.dtype) -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pads = torch.constant_pad_nd(x, (1, -1), 2j), torch.constant_pad_nd(x, (0, 1, 2, 0), 1 + 1j)
        return *pads, torch.full_like(x.mT, 1j), x.new_full((2,), 3 - 1j), x.index_fill(0, i, 1j)

    x, i = torch.randn(3, 4, dtype=dtype), torch.tensor([0, 2])
    assert_identical(compiled(f)(x, i), f(x, i))


@pytest.mark.parametrize("beta", [0, 0j, 2, 0.5j])
def test_complex_factors_of_products(compiled: Wrap, beta: complex) -> None:
    """A tensor whose factor is 0 is not read."""

    def f(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        options = {"beta": beta, "alpha": 1.5j}
        return (
            torch.addmm(x, y, y, **options),
            torch.addmv(x[0], y, y[0], **options),
            torch.addr(x, y[0], y[1], **options),
            torch.baddbmm(x, b, b, **options),
            torch.addbmm(x, b, b, **options),
        )

    x, y, b = (torch.randn(s, dtype=torch.complex128) for s in ((3, 3), (3, 3), (2, 3, 3)))
    x[0, 0] = torch.nan if beta == 0 else 1
    torch.testing.assert_close(compiled(f)(x, y, b), f(x, y, b), rtol=1e-14, atol=1e-14)


def test_truth_values_as_numbers(compiled: Wrap) -> None:
    f = lambda x, i: (x.index_add(0, i, x[i], alpha=True), x.index_fill(0, i, True))  # noqa: E731
    for x in (torch.tensor([True, False, True]), torch.arange(3), torch.randn(3)):
        assert_identical(compiled(f)(x, torch.tensor([0, 2])), f(x, torch.tensor([0, 2])))


def test_lists_of_copies(compiled: Wrap) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        columns = torch.unbind_copy(x, 1)
        rows = torch.split_with_sizes_copy(x, [1, 3], 0)
        return (*columns, *rows)  # pyright: ignore[reportGeneralTypeIssues]  # both declare None

    x = torch.randn(4, 2)
    assert_identical(
        _gradients(lambda x: sum(t.sum() for t in compiled(f)(x)), x),
        _gradients(lambda x: sum(t.sum() for t in f(x)), x),
    )
    assert_identical(compiled(f)(x), f(x))


def test_the_first_complex_call_is_right_too(compiled: Wrap) -> None:
    """AOTAutograd makes it under a dispatch mode, in which ATen's complex pinv is another matrix."""
    run, x = compiled(torch.linalg.pinv), torch.randn(4, 4, dtype=torch.complex64)
    torch.testing.assert_close(x @ run(x), torch.eye(4, dtype=torch.complex64), rtol=0, atol=1e-4)


def test_conjugated_input(compiled: Wrap) -> None:
    f = lambda x: (x * x).sum(0) + x.imag[0]  # noqa: E731
    x = torch.randn(3, 4, dtype=torch.complex64).conj()
    assert_identical(compiled(f)(x), f(x))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool]
)
def test_integers(compiled: Wrap, dtype: torch.dtype) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wrapped = x + x  # of 100 and 100 in int8: -56
        return (
            wrapped,
            x.sum(),
            x.cumsum(0),
            x * 2.5,
            x.float().mean(),
            x == 1,
            x.sort().values,
            x[x.long() % 3],
            ~x,
        )

    x = torch.tensor([100, 3, 1, 0]).to(dtype)
    assert_identical(compiled(f)(x), f(x))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", ["transposed", "strided", "expanded", "offset"])
def test_gradients_of_inputs_that_are_not_contiguous(compiled: Wrap, layout: str) -> None:
    base = torch.randn(4, 6)
    x = {
        "transposed": base.t(),
        "strided": base[::2, 1::3],
        "expanded": base[:, :1].expand(4, 5),
        "offset": base[1:],
    }
    f = lambda x: (x.softmax(0) @ x.t()).reshape(-1) * x.reshape(-1)[0]  # noqa: E731
    assert_identical(_gradients(compiled(f), x[layout]), _gradients(f, x[layout]))


def test_gradients_without_memory(compiled: Wrap) -> None:
    """Autograd makes zeros that kernels could not read: the gradient of ``sgn``, for one."""
    x = torch.randn(9, requires_grad=True)
    f = lambda x: x.sin().exp() * 2  # noqa: E731
    compiled(f, fuse=True)(x).sgn().sum().backward()
    compiled(lambda x: f(x).sgn().cos().sum(), fuse=True)(x).backward()
    assert torch.equal(x.grad, torch.zeros(9))
    zeros = torch._efficientzerotensor(9)
    torch.testing.assert_close(compiled(f, fuse=True)(zeros), f(zeros))


def test_negatives_of_their_memory(compiled: Wrap) -> None:
    """As the imaginary part of a conjugate is: given, written to, computed, and as a gradient."""
    f = lambda x: (x.sin() * 2, x.exp())  # noqa: E731
    x, c = torch._neg_view(torch.randn(9)), torch.randn(1, dtype=torch.complex64)
    torch.testing.assert_close(compiled(f, fuse=True)(x), f(x))
    part = lambda c: f(c.conj().imag)  # noqa: E731
    torch.testing.assert_close(compiled(part, fuse=True)(c), part(c))
    write = lambda x: x.mul_(2).sin() + 1  # noqa: E731
    given, expected = torch._neg_view(x.neg().clone()), x.clone()
    assert given.is_neg() and x.is_neg()
    torch.testing.assert_close(compiled(write, fuse=True)(given), write(expected))
    torch.testing.assert_close(given, expected)
    leaves = [torch.ones(9, requires_grad=True) for _ in range(2)]
    for leaf, g in zip(leaves, (compiled(f, fuse=True), f), strict=True):
        g(leaf)[0].backward(x)
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad)


def test_inputs_that_share_memory_and_are_written_to() -> None:
    """AOTAutograd makes them ``as_strided`` views of one, so that the graph runs through ATen."""

    def f(x: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        part.mul_(3)
        x[0] += part[0]
        return x * 2 + part.sum()

    def called(function: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.arange(6.0)
        return function(x, x[2:4]), x

    with pytest.warns(ShardcFallbackWarning, match="as_strided"):
        found = called(torch.compile(f, backend="shardc"))
    assert_identical(found, called(f))


def test_in_place_on_an_intermediate_with_gradient(compiled: Wrap) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        y[1:].mul_(x[:-1])
        y.view(2, 2)[0].copy_(x[:2].exp())
        return y.relu_() + y

    x = torch.randn(4)
    assert_identical(_gradients(compiled(f), x), _gradients(f, x))


def test_inference_mode_with_writes_and_views(compiled: Wrap) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.add_(1)
        return x.t(), x * 2

    with torch.inference_mode():
        x, twin = torch.ones(2, 3), torch.ones(2, 3)
        found = compiled(f)(x)
        assert_identical((found, x), (f(twin), twin))
        assert found[0].is_inference()
        found[0].zero_()
        assert not x.any()
