"""The largest number that fits, in few questions."""

from __future__ import annotations

import random

import pytest

from shardc.planning.largest import largest


@pytest.mark.parametrize("most", [1, 2, 7, 1000, 1 << 20])
def test_the_next_one_does_not_fit(most: int) -> None:
    draw = random.Random(most)
    for _ in range(50):
        base, slope = draw.uniform(-5, 100), draw.uniform(0.001, 60)
        asked: list[int] = []

        def free(n: int, base: float = base, slope: float = slope, asked: list[int] = asked) -> float:
            asked.append(n)
            return base - slope * n

        found = largest(free, most)
        assert found == sum(base - slope * n >= 0 for n in range(1, min(most, 100_000) + 1))
        assert len(asked) <= 5 and len(set(asked)) == len(asked)


def test_what_does_not_fall_evenly_is_found_too() -> None:
    for wanted in range(60):
        assert largest(lambda n, w=wanted: 1.0 if n <= w else -(2.0**n), 50) == min(wanted, 50)
