"""Random draws at the extremes of the generator: finite, in range, never log(0)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from shardc.frontend.operators import random as draws
from shardc.frontend.step.random_stream import RandomStream
from shardc.runtime.operators.random import BITS

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


class Constant(RandomStream):
    """Gives one number of [0, 1) always: 0, or the last before 1."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.last = last

    def uniform(self, size: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.full(tuple(size), 1 - 2.0 ** -BITS[dtype] if self.last else 0.0, dtype=dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
class TestEnds:
    def test_uniform(self, last: bool, dtype: torch.dtype) -> None:
        for low, high in ((0, 1), (1, 3), (-1, 1), (-3, -1), (1, 1), (0, 1e-3)):
            made = draws.uniform(Constant(last), torch.empty(1, dtype=dtype), low, high)
            assert low <= made.item() and (made.item() < torch.tensor(high, dtype=dtype) or low == high)
        assert 0 <= draws.rand(Constant(last), [1], dtype=dtype).item() < 1

    @pytest.mark.parametrize(
        "op, arguments",
        [
            ("normal", ()),
            ("exponential", (1e-3,)),
            ("exponential", (10.0,)),
            ("cauchy", (0.0, 1e-3)),
            ("log_normal", (0.0, 0.5)),
            ("geometric", (0.01,)),
            ("geometric", (0.99,)),
        ],
    )
    def test_finite(self, last: bool, dtype: torch.dtype, op: str, arguments: tuple[Any, ...]) -> None:
        made = getattr(draws, op)(Constant(last), torch.empty(1, dtype=dtype), *arguments)
        assert made.dtype == dtype and made.isfinite().all()
        if op in ("exponential", "log_normal", "geometric"):
            assert made.item() > 0
        if op == "geometric":
            assert made.item() >= 1

    def test_integers(self, last: bool, dtype: torch.dtype) -> None:
        for low, high in ((0, 7), (-5, 3), (0, 2**53), (0, 2**60 + 1), (-(2**62), 2**62), (-(2**63), 2**63)):
            made = int(Constant(last).integers(low, high, [1]).item())
            assert low <= made < high
            if high - low <= 2**53:
                assert made == (high - 1 if last else low)
        if dtype in (torch.float32, torch.float64):
            top = draws.random(Constant(last), torch.empty(1, dtype=dtype)).item()
            assert 0 <= top <= 2 / torch.finfo(dtype).eps and (top > 1e6) == last

    def test_no_weight_no_draw(self, last: bool, dtype: torch.dtype) -> None:
        weights = torch.tensor([0, 0.1, 0, 0.2, 0, 0], dtype=dtype)
        for count, replacement in ((1, False), (2, False), (5, True)):
            made = draws.multinomial(Constant(last), weights, count, replacement)
            assert set(made.tolist()) <= {1, 3}
        made = draws.multinomial(Constant(last), weights, 5, True)
        assert set(made.tolist()) == ({3} if last else {1})


def test_no_draw_of_what_rounds_above_its_neighbour() -> None:
    """Sums of weights may round to steps where a weight is 0, on a device that adds in parallel."""
    weights = torch.rand(1000, generator=torch.Generator().manual_seed(0)) * (torch.arange(1000) % 3 == 0)
    stream = RandomStream()
    with stream.opened():
        stream.seed = torch.tensor(5)
        made = draws.multinomial(stream, weights, 20000, True)
    assert (weights[made] > 0).all() and made.unique().numel() > 300


def test_strides_are_those_of_torch() -> None:
    like = torch.empty(4, 3).t()
    assert draws.rand_like(Constant(True), like).stride() == torch.rand_like(like).stride()
    dense = torch.contiguous_format
    assert draws.rand_like(Constant(True), like, memory_format=dense).stride() == (4, 1)
