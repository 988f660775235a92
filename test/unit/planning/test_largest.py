"""The largest number that fits, in few questions."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from shardc.planning.largest import largest


def asked(free: Callable[[int], float], most: int) -> tuple[int, int]:
    """The answer, and how many questions it took."""
    found: list[int] = []

    def noted(n: int) -> float:
        assert 1 <= n <= most and n not in found
        found.append(n)
        return free(n)

    return largest(noted, most), len(found)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("most", [1, 2, 7, 1000, 1 << 20])
def test_where_memory_grows_evenly(most: int) -> None:
    draw = random.Random(most)
    for _ in range(200):
        base, slope = draw.uniform(-5, 100), draw.uniform(0.001, 60)
        fitting = sum(base - slope * n >= 0 for n in range(1, min(most, 100_001) + 1))
        found, questions = asked(lambda n, b=base, s=slope: b - s * n, most)
        assert found == fitting and questions <= 8


@pytest.mark.parametrize("flat", [1, 3, 17, 300])
def test_where_small_ones_need_no_more(flat: int) -> None:
    """The optimizer's update has the peak until activations need more."""
    for wanted in (flat, flat + 1, 2 * flat + 7, 9000):
        found, questions = asked(lambda n, w=wanted: 1.0 + w - max(n, flat), 1 << 20)
        assert found == wanted + 1 and questions <= 20


def test_where_nothing_falls_evenly() -> None:
    for wanted in range(60):
        found, questions = asked(lambda n, w=wanted: 1.0 if n <= w else -(2.0**n), 50)
        assert found == min(wanted, 50) and questions <= 14
