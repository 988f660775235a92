"""Every op that lowers: its kernel against eager, in f64 and in its own dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from shardc.passes.fuse.lower.math import NARROW

from .conftest import assert_near
from .lowered_functions import BINARY, INTEGERS, POSITIVE, ROWS, UNARY, X, Y

aten = torch.ops.aten
NARROW_CALLS = {f"aten.{name}" for name in NARROW}


def _check(fuse: Any, f: Callable[..., Any], *tensors: Tensor, rounding: str = "fused") -> None:
    """Two more pointwise ops around, so that there is something to fuse with; then the op itself alone."""

    def around(*args: Tensor) -> tuple[Tensor, ...]:
        found = f(*args)
        found = found if isinstance(found, tuple) else (found,)
        return tuple(-r if r.dtype.is_floating_point else r.to(torch.float32) + 1 for r in found)

    done = fuse(around, *tensors, rounding=rounding)
    is_narrow = tensors[0].dtype == torch.float64 and NARROW_CALLS.intersection(done.stayed)
    # A cast to its own dtype leaves only the negation.
    assert is_narrow or done.kernels or done.stayed == ["aten.neg"], [str(d) for *_, d in done.decisions]
    expected = around(*tensors)
    for found, wanted in zip(done.results, expected, strict=True):
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        assert_near(found, wanted)


DTYPES = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", UNARY)
@DTYPES
def test_unary(fuse: Any, name: str, dtype: torch.dtype) -> None:
    _check(fuse, UNARY[name], X.to(dtype), rounding="eager")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", POSITIVE)
@DTYPES
def test_functions_of_positive_numbers(fuse: Any, name: str, dtype: torch.dtype) -> None:
    _check(fuse, POSITIVE[name], (X.abs() + 0.3).to(dtype), rounding="eager")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", BINARY)
@DTYPES
def test_binary(fuse: Any, name: str, dtype: torch.dtype) -> None:
    _check(fuse, BINARY[name], X.to(dtype), Y.to(dtype), rounding="eager")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ROWS)
@DTYPES
def test_reductions(fuse: Any, name: str, dtype: torch.dtype) -> None:
    _check(fuse, ROWS[name], X.to(dtype), Y.to(dtype), rounding="eager")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_integers(fuse: Any, name: str, dtype: torch.dtype) -> None:
    _check(fuse, INTEGERS[name], X.to(dtype), (Y * 2).to(dtype))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("int", "int32", "gelu")])
def test_infinities_and_nans_are_those_of_eager(fuse: Any, name: str) -> None:
    """Not of gelu: in f32 eager's vectorized kernel makes NaN of an infinity, its own f64 kernel does not."""
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 3e38, -3e38, 1e-40])
    _check(fuse, UNARY[name], x)


def test_gelu_of_infinity_is_that_of_eager_in_f64(fuse: Any) -> None:
    _check(
        fuse, aten.gelu, torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0], dtype=torch.float64)
    )


@pytest.mark.parametrize(
    "name", ["softmax", "safe_softmax", "log_softmax", "amax", "amin", "rms_norm", "sum", "var"]
)
def test_rows_with_infinities_and_nans(fuse: Any, name: str) -> None:
    x = X.clone()
    x[0, 1], x[1, 2], x[2] = float("inf"), float("nan"), -float("inf")
    _check(fuse, ROWS[name], x, Y)
