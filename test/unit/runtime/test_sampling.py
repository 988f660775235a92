"""Samplers that draw as often as they must: shards, extremes, and an end in every case."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from shardc.runtime.operators import sampling

SEED = torch.tensor(1234)
OPS: dict[str, Callable[..., Tensor]] = {
    "poisson": lambda t, *place: torch.ops.shardc.poisson(t, SEED, 3, *place),
    "binomial": lambda t, *place: torch.ops.shardc.binomial((t * 20).ceil(), t / 41, SEED, 3, *place),
    "standard_gamma": lambda t, *place: torch.ops.shardc.standard_gamma(t, SEED, 3, *place),
}


def parameters(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """From 0.05 to 40: some are sampled by inversion, some by rejection."""
    return torch.linspace(0.05, 40, math.prod(shape), dtype=torch.float64).view(shape).to(dtype)


def whole(op: str, values: Tensor) -> Tensor:
    return OPS[op](values, [0] * values.dim(), list(values.shape))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [(29,), (6, 10), (3, 5, 7)], ids=str)
def test_a_shard_equals_the_slice_of_the_whole(op: str, size: tuple[int, ...], dtype: torch.dtype) -> None:
    values = parameters(*size, dtype=dtype)
    full = whole(op, values)
    assert full.dtype == dtype and full.unique().numel() > 5
    spans = [[(0, n), (n // 3, n), (1, n // 2 + 1)] for n in size]
    for span in itertools.product(*spans):
        place = tuple(slice(a, b) for a, b in span)
        shard = OPS[op](values[place], [a for a, _ in span], list(size))
        assert torch.equal(shard, full[place])


@pytest.mark.parametrize("op", OPS)
def test_scalars_and_empty_shards(op: str) -> None:
    assert whole(op, torch.tensor(3.0)).shape == ()
    assert whole(op, torch.empty(3, 0)).shape == (3, 0)


@pytest.mark.parametrize("op", OPS)
def test_fake_tensors_carry_shape_and_dtype(op: str) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        made = whole(op, torch.empty(3, 2, dtype=torch.bfloat16))
    assert (made.shape, made.dtype) == ((3, 2), torch.bfloat16)


def draw(op: str, *values: Any) -> list[float]:
    tensors = [torch.tensor(v, dtype=torch.float64) for v in values]
    size = list(tensors[0].shape)
    return getattr(torch.ops.shardc, op)(*tensors, SEED, 3, [0], size).tolist()


def test_extremes_of_poisson() -> None:
    zero, tiny, huge, negative, unknown, endless = draw("poisson", [0, 1e-300, 1e15, -1, math.nan, math.inf])
    assert zero == tiny == 0
    assert abs(huge - 1e15) < 6e7 * 5
    assert all(map(math.isnan, (negative, unknown))) and endless == math.inf


def test_extremes_of_binomial() -> None:
    counts = [0, 5, 5, 1e12, 1e12, 1e12, 5, -1, 5]
    chances = [0.3, 0, 1, 0.5, 1e-12, 1, 1.5, 0.5, math.nan]
    none, never, always, half, rare, sure, *senseless = draw("binomial", counts, chances)
    assert (none, never, always, sure) == (0, 0, 5, 1e12)
    assert abs(half - 5e11) < 5e5 * 6 and 0 <= rare < 10
    assert all(map(math.isnan, senseless))


def test_extremes_of_gamma() -> None:
    small, large, zero, unknown = draw("standard_gamma", [1e-6, 1e12, 0, math.nan])
    assert 0 < small < 1 and abs(large - 1e12) < 1e6 * 6
    assert math.isnan(unknown) and math.isnan(zero)
    narrow = torch.ops.shardc.standard_gamma(torch.full((50,), 1e-4), SEED, 3, [0], [50])
    assert (narrow >= torch.finfo(torch.float32).tiny).all()


@pytest.mark.parametrize(
    ("op", "values"), [("poisson", (10.0,)), ("binomial", (20.0, 0.5)), ("standard_gamma", (0.01,))]
)
def test_proposals_are_accepted_soon(
    op: str, values: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the parameters where fewest are: what 64 rounds leave over is then below 1e-30 of all."""
    monkeypatch.setattr(sampling, "ROUNDS", 3)
    tensors = [torch.full((20000,), v, dtype=torch.float64) for v in values]
    made = getattr(torch.ops.shardc, op)(*tensors, SEED, 3, [0], [20000])
    assert made.isnan().double().mean() < 0.33**3


def test_another_seed_or_op_gives_other_samples() -> None:
    values = parameters(40) + 20
    made = torch.ops.shardc.poisson(values, SEED, 3, [0], [40])
    for seed, op in ((SEED + 1, 3), (SEED, 4)):
        other = torch.ops.shardc.poisson(values, seed, op, [0], [40])
        assert (made == other).double().mean() < 0.3
