"""Calls along a dim that devices cut make what PyTorch makes on one device; also where values tie, are
infinite or no numbers, and in 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan

import pytest
import torch
from cut_calls import CutCall, check, targets
from torch import Tensor

from shardc.dialects.context import new_context
from shardc.dialects.rules.proving.execution import sample

aten = torch.ops.aten
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with new_context():
        yield


def _x(dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return sample(4, 16, 6, seed=seed).to(dtype)


def _rows(dtype: torch.dtype = torch.float64) -> Tensor:
    """Rows that tie, that are infinite, that hold no numbers, and one of a large offset."""
    x = (4 * sample(8, 16)).round()
    x[1], x[2, 3:5], x[3, 7] = -inf, inf, -inf
    x[4, 9], x[4, 12], x[5] = nan, nan, 2.0
    x[6] = 1e4 + x[6] / 64
    return x.to(dtype)


@DTYPES
@pytest.mark.parametrize("dim", [(1,), (1, 2), (-1, -2)], ids=str)
@pytest.mark.parametrize("keepdim", [True, False])
def test_logsumexp(dim: tuple[int, ...], keepdim: bool, dtype: torch.dtype) -> None:
    check(CutCall("aten.logsumexp", (300 * _x(dtype), dim, keepdim), (1,)))


@DTYPES
def test_logsumexp_of_infinities(dtype: torch.dtype) -> None:
    check(CutCall("aten.logsumexp", (_rows(dtype), (1,), False), (1,)))


def test_logsumexp_of_integers() -> None:
    check(CutCall("aten.logsumexp", (sample(4, 16, dtype=torch.int64), (1,), False), (1,)))


@pytest.mark.sampled(1)
@DTYPES
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
@pytest.mark.parametrize(("shape", "dim"), [((6,), 2), ((16, 6), 1), ((4, 16, 6), 1)], ids=str)
def test_layer_norm(shape: tuple[int, ...], dim: int, affine: bool, dtype: torch.dtype) -> None:
    """The mean is 50 times the deviation: six bits are lost, of a difference of squares twelve."""
    ways = 2 if dim == 2 else 8
    x = (50 + _x()).to(dtype)
    weights = [sample(*shape, seed=s).to(dtype) for s in (1, 2)] if affine else [None, None]
    call = CutCall("aten.native_layer_norm", (x, shape, *weights, 1e-5), (dim, *[None] * (2 * affine)), ways)
    check(call, 512.0)
    _, mean, rstd = call.native()
    given = (_x(dtype, 3), x, shape, mean, rstd, *weights, (True, affine, affine))
    dims = (dim, dim, None, None, *[None] * (2 * affine))
    check(CutCall("aten.native_layer_norm_backward", given, dims, ways), 512.0)


@pytest.mark.sampled(1)
@DTYPES
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
@pytest.mark.parametrize(("dim", "ways"), [(2, 8), (3, 2), (1, 8)], ids=["height", "width", "channels"])
def test_group_norm(dim: int, ways: int, affine: bool, dtype: torch.dtype) -> None:
    """Channels cut 8 ways are half a group each."""
    x = (5 + sample(4, 8, 16, 6)).to(dtype)
    weights = [sample(8, seed=s).to(dtype) for s in (1, 2)] if affine else [None, None]
    call = CutCall(
        "aten.native_group_norm", (x, *weights, 4, 8, 96, 4, 1e-5), (dim, *[None] * (2 * affine)), ways
    )
    check(call, 64.0)
    _, mean, rstd = call.native()
    given = (
        sample(4, 8, 16, 6, seed=3).to(dtype),
        x,
        mean,
        rstd,
        weights[0],
        4,
        8,
        96,
        4,
        (True, affine, affine),
    )
    check(
        CutCall("aten.native_group_norm_backward", given, (dim, dim, None, None, *[None] * affine), ways),
        512.0,
    )


@pytest.mark.sampled(1)
@DTYPES
@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("target", ["max.dim", "min.dim", "argmax", "argmin"])
def test_the_first_extremum_wins(target: str, keepdim: bool, dtype: torch.dtype) -> None:
    call = CutCall(f"aten.{target}", (_rows(dtype), -1, keepdim), (1,))
    assert f"aten.{target}" not in targets(call.split())
    check(call, 0.0)


@pytest.mark.parametrize("target", ["max.dim", "argmin"])
def test_extrema_of_integers(target: str) -> None:
    check(CutCall(f"aten.{target}", (sample(4, 16, dtype=torch.int64), 1, False), (1,)))


def test_the_place_in_all_dims_stays_native() -> None:
    assert targets(CutCall("aten.argmax", (_x(), None, False), (1,)).split()) == [
        "aten.argmax",
        "func.return",
    ]


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_top_k(k: int, largest: bool) -> None:
    """No other dim divides, so the candidates of blocks are gathered."""
    x = torch.randperm(3 * 64 * 5, generator=torch.Generator().manual_seed(0)).view(3, 64, 5).double()
    call = CutCall("aten.topk", (x, k, 1, largest, True), (1,))
    assert targets(call.split()).count("aten.topk") == 2
    check(call, 0.0)


def test_too_many_of_a_row_stay_native() -> None:
    assert targets(CutCall("aten.topk", (_x(), 8, 1, True, True), (1,)).split()).count("aten.topk") == 1


@DTYPES
@pytest.mark.parametrize("target", ["cumsum", "cumprod", "logcumsumexp"])
def test_scans(target: str, dtype: torch.dtype) -> None:
    given = (_x(dtype), 1) if target == "logcumsumexp" else (_x(dtype), -2, None)
    check(CutCall(f"aten.{target}", given, (1,)), 64.0)


def test_scans_of_other_dtypes() -> None:
    check(CutCall("aten.cumsum", (sample(4, 16, dtype=torch.bool), 1, None), (1,)))
    check(CutCall("aten.cumsum", (sample(4, 16, dtype=torch.int64), 1, torch.float64), (1,)))
    check(CutCall("aten.logcumsumexp", (sample(4, 16) - inf, 1), (1,)))


@pytest.mark.parametrize("descending", [True, False])
def test_sort(descending: bool) -> None:
    """Rows lie on the devices while they are sorted."""
    call = CutCall("aten.sort.stable", (_rows().nan_to_num(), True, 1, descending), (1,))
    assert call.sent() == {"all_to_all": 7 * 16 * 3}
    check(call, 0.0)
