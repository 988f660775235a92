"""Measures of errors, and their limits."""

from __future__ import annotations

import pytest
import torch

from shardc.backends.eager.program import find_step
from shardc.backends.eager.proof.comparison import Comparison, Row
from shardc.backends.eager.proof.tolerance import (
    UPDATE,
    coarsest_dtype,
    difference,
    for_rounding,
    in_f64,
    magnitude,
    own_precision,
    update_error,
)

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([INF, 1.0], [INF, 1.0], 0.0),
        ([INF, 1.0], [-INF, 1.0], INF),
        ([1.0], [INF], INF),
        ([NAN], [NAN], INF),
        ([], [], 0.0),
        ([1.0], [1.0, 1.0], INF),
    ],
)
def test_difference(a, b, expected):
    assert difference(torch.tensor(a), torch.tensor(b)) == expected


def test_difference_of_other_dtypes():
    assert difference(torch.tensor([True, False]), torch.tensor([True, True])) == 1
    assert difference(torch.tensor([2**60 + 4096]), torch.tensor([2**60])) == 4096
    assert difference(torch.tensor([3 + 4j]), torch.tensor([0j])) == 5
    assert difference(torch.tensor([1.0]).bfloat16(), torch.tensor([1.0]).double() + 1e-12) == pytest.approx(
        1e-12, rel=1e-3
    )


def test_magnitude_is_of_finite_values():
    assert magnitude(torch.tensor([-3.0, INF, NAN, 2.0])) == 3
    assert magnitude(torch.tensor([])) == 0


def test_what_has_cancelled():
    """In bf16 four roundings, 2^-7 each, and something for the accumulator."""
    assert in_f64().cancels == own_precision(torch.float32).cancels == 1e-3
    assert own_precision(torch.bfloat16).cancels == pytest.approx(4 * 2**-7, rel=1e-3)


def test_bounds():
    f32, bf16 = own_precision(torch.float32), own_precision(torch.bfloat16)
    assert f32.relative == pytest.approx(272 * 2**-23) and bf16.relative == pytest.approx(
        16 * 2**-7 + 256 * 2**-23
    )
    for role in ("loss", "grad", "param", "opt_state", "buffer"):
        assert in_f64().bound(role, torch.float32, 1e-3, 1.0) == 1e-9
    assert f32.bound("opt_state", torch.float32, 1.0, 0.0) == 2 * f32.relative
    assert f32.bound("param", torch.float32, 0.5, 1e-3) == pytest.approx(f32.relative + 4e-3)
    assert f32.bound("buffer", torch.int64, 1.0, 1.0) == 0


def test_the_error_of_an_update():
    before, step = torch.full((1000,), 0.02), torch.full((1000,), 1e-3)
    right = before + step
    flipped = torch.where(torch.arange(1000) < 10, before - step, right)  # where Adam's gradient is rounding
    assert update_error(right, right, before) == 0
    assert update_error(flipped, right, before) == pytest.approx(0.02, rel=1e-2)
    assert update_error(before, right, before) == pytest.approx(1, rel=1e-2)
    assert update_error(before - step, right, before) > 1 > UPDATE
    assert update_error(right * (1 + 2e-7), right, right) < UPDATE  # nothing moved: rounding is no update


@pytest.mark.parametrize(
    ("dtype", "expected"), [("f32", torch.float32), ("bf16", torch.bfloat16), ("f64", torch.float64)]
)
def test_the_coarsest_dtype_of_a_step(parse, dtype, expected):
    text = (
        f"func.func @step(%x: !torch.vtensor<[2],si64>, %y: !torch.vtensor<[2],{dtype}>, %z: "
        f"!torch.vtensor<[2],f64>) {{ return }}"
    )
    module = parse(text)
    assert coarsest_dtype(find_step(module)) == expected


def test_a_table_has_the_worst_rows_first_and_the_first_failure_in_its_verdict():
    rows = [
        Row(0, "loss", "loss", 1e-12, 1e-9),
        Row(0, "grad", "w", 0.1, 1e-9),
        Row(0, "param", "w", 0.5, 1e-9),
    ]
    found = Comparison(rows)
    assert not found.passed and found.first_failure is rows[1] and found.failures == [rows[2], rows[1]]
    verdict, _, worst, second, *rest = found.render(limit=2).splitlines()
    assert verdict == "NOT equal: 2 of 3 comparisons fail, the first in the program at grad 'w' of step 0"
    assert "param" in worst and worst.endswith("FAIL") and "grad" in second
    assert rest == ["      ... and 1 with smaller errors"]


def test_nothing_compared_is_not_a_pass():
    assert not Comparison().passed
    assert Comparison().render().startswith("NOT equal: nothing was compared")


def test_bounds_of_programs_that_magnify_rounding():
    usual = own_precision(torch.float32)
    assert for_rounding(usual, 0.0) == usual
    assert for_rounding(usual, 1e-3).relative == pytest.approx(8e-3)
    assert for_rounding(usual, 1.0).relative == 0.1, "a program that is wrong is off by more"
