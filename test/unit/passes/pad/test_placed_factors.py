"""Factors of calls that depend on positions: sequences in another order must be restored before the call."""

from __future__ import annotations

from typing import Any

import pytest

from shardc.dialects.rules.proving.execution import call_of, sample
from shardc.passes.pad.call import placed_factors

HEADS = sample(2, 3, 8, 4)
# What a rank trades along one dim says nothing of the others: a sequence beside padded heads stays folded.
CASES: dict[str, tuple[str, tuple[Any, ...], str]] = {
    "pad of heads": ("aten.constant_pad_nd", (HEADS, (4, 0)), "d"),
    "pad of rows": ("aten.constant_pad_nd", (HEADS, (0, 0, 1, 7)), "c"),
    "roll": ("aten.roll", (HEADS, (3,), (2,)), "c"),
    "flip": ("aten.flip", (HEADS, (3,)), "d"),
    "pointwise": ("aten.neg", (HEADS,), ""),
    "triangle": ("aten.tril", (HEADS, 0), "cd"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_stands_for_positions(case: str) -> None:
    target, args, placed = CASES[case]
    assert placed_factors(call_of(target, args)[0]) == set(placed)
