"""The order in which benchmarks time their contenders."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "bench"))
from cpu_kernels import each_after_each, measure


@pytest.mark.parametrize("names", ["a", "ab", "abc", "abcd"])
def test_each_contender_follows_each_other_one_equally_often(names: str) -> None:
    order = each_after_each(list(names))
    pairs = list(zip(order, order[1:] + order[:1], strict=True))
    assert len(names) == 1 or sorted(pairs) == sorted((a, b) for a in names for b in names if a != b)


def test_at_least_as_many_rounds_as_asked_for() -> None:
    calls = list[str]()
    measure({name: lambda name=name: calls.append(name) for name in "abc"}, 5, lambda: 0.0)
    timed = calls[7:]  # two calls of each, and one before the first that is timed
    assert [timed.count(name) for name in "abc"] == [6, 6, 6]
