"""Scans along the last dim as kernels: values of f64, edges, and which calls become kernels."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import inf, nan

import pytest
import torch
from torch import Tensor

from shardc.diagnostics.dynamo import ShardcFallbackWarning

SCANS: dict[str, Callable[[Tensor], Tensor]] = {
    "sums": lambda x: x.cumsum(-1),
    "products": lambda x: (1 + 0.01 * x).cumprod(-1),
    "from the end": lambda x: x.flip(-1).cumsum(-1).flip(-1),
    "products from the end": lambda x: (1 + 0.01 * x).flip(-1).cumprod(-1).flip(-1),
    "of what is computed": lambda x: torch.exp(0.01 * (x * (x > 0)).cumsum(-1)) - x,
    "a flip that is read twice": lambda x: x.flip(-1).cumsum(-1).flip(-1) + x.flip(-1),
}


def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    torch._dynamo.reset()
    warnings.simplefilter("error", ShardcFallbackWarning)  # pytest restores the filters after each test
    return torch.compile(function, backend="shardc", dynamic=False)


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5, 7, 33), (1000,)])
def test_values_and_gradients(name: str, dtype: torch.dtype, shape: tuple[int, ...], threads: int) -> None:
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    exact = x.detach().double().requires_grad_()
    function, seed = SCANS[name], torch.randn(shape, dtype=dtype)
    found, wanted = _compiled(function)(x), function(exact)
    (gradient,), (true,) = (
        torch.autograd.grad(found, x, seed),
        torch.autograd.grad(wanted, exact, seed.double()),
    )
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for got, right in ((found, wanted), (gradient, true)):
        torch.testing.assert_close(
            got.double(), right, rtol=tolerance, atol=tolerance * float(right.abs().max())
        )


EXACT: dict[str, Callable[[Tensor], Tensor]] = {
    "sums": lambda x: x.cumsum(-1),
    "products": lambda x: x.cumprod(-1),
    "maxima": lambda x: x.cummax(-1).values,
    "minima": lambda x: x.cummin(-1).values,
    "maxima from the end": lambda x: x.flip(-1).cummax(-1).values.flip(-1),
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("steps", [16, 21, 40])
def test_integers_wrap_as_in_eager(name: str, steps: int, threads: int) -> None:
    x = torch.randint(-(2**62), 2**62, (50, steps))
    x[0], x[1], x[2, 3] = 2**63 - 1, -(2**63), -(2**63)
    assert torch.equal(_compiled(EXACT[name])(x), EXACT[name](x))
    extrema = (x >> 32).int()
    if "ima" in name:
        assert torch.equal(_compiled(EXACT[name])(extrema), EXACT[name](extrema))


@pytest.mark.parametrize("name", ["maxima", "minima", "maxima from the end"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extrema_of_floats(name: str, dtype: torch.dtype) -> None:
    x = torch.randn(6, 37, dtype=dtype)
    x[0], x[1], x[2, 30], x[3, 2], x[4, 36] = inf, -inf, inf, nan, nan
    torch.testing.assert_close(_compiled(EXACT[name])(x), EXACT[name](x), equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("at", [0, 21])
@pytest.mark.parametrize("value", [nan, inf])
def test_special_values_only_change_what_follows(at: int, value: float) -> None:
    x = torch.rand(2, 41) + 0.5
    x[0, at] = value
    for name in ("sums", "from the end"):
        torch.testing.assert_close(_compiled(SCANS[name])(x), SCANS[name](x), equal_nan=True)
    torch.testing.assert_close(_compiled(lambda x: x.cumprod(-1))(x), x.cumprod(-1), equal_nan=True)


def test_products_leave_the_range_of_f32_and_come_back() -> None:
    x = torch.tensor([1e30, 1e30, 1e-30, 1e-30, 2.0]).repeat(8)[None]
    torch.testing.assert_close(_compiled(lambda x: x.cumprod(-1))(x), x.cumprod(-1))


def test_long_rows_are_as_exact_as_eager() -> None:
    x = torch.rand(1, 1_000_000)
    exact = x.double().cumsum(-1)
    found = _compiled(lambda x: x.cumsum(-1))(x)
    assert ((found - exact).abs() / exact).max() < 3e-7


def test_strides_and_sizes_of_zero() -> None:
    function = lambda x: x.cumsum(-1)  # noqa: E731
    for x in (torch.randn(40, 30).T, torch.randn(30, 80)[:, ::2], torch.randn(1, 40).expand(3, 40)):
        torch.testing.assert_close(_compiled(function)(x), function(x))
    for shape in ((0, 40), (40, 0), ()):
        assert torch.equal(_compiled(function)(torch.ones(shape)), function(torch.ones(shape)))


@pytest.mark.parametrize(
    ("function", "kernels"),
    [
        (lambda x: x.cumsum(-1), 1),
        (lambda x: x.flip(-1).cumsum(-1).flip(-1), 1),
        (lambda x: x.cumsum(-1, dtype=torch.float64), 0),
        (lambda x: x[:, :15].contiguous().cumsum(-1), 0),
        (lambda x: x.long().cumsum(-1), 1),
        (lambda x: x.int().cumsum(-1), 0),
        (lambda x: x.cummax(-1).values, 1),
        (lambda x: x.cummax(-1).indices, 0),
        (lambda x: x.long().cummin(-1).values * 2, 1),
        (lambda x: x.cummax(0).values, 0),
    ],
)
def test_calls_that_become_kernels(
    function: Callable[[Tensor], Tensor], kernels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shardc.passes.fuse.structured.scan import ScanKernels

    written: list[object] = []
    write = ScanKernels.write
    monkeypatch.setattr(ScanKernels, "write", lambda *a: written.append(a) or write(*a))
    x = 3 * torch.randn(20, 40)
    torch.testing.assert_close(_compiled(function)(x), function(x))
    assert len(written) == kernels
