"""Moments of two runs that match."""

from __future__ import annotations

import pytest

from shardc.backends.torch.memory.curve import Height, Place
from shardc.planning.depth.moments import inserted


def heights(text: str) -> list[Height]:
    """Return a moment for each letter, which says where it is; ``made`` numbers them."""
    return [Height(Place("", letter), 0, 0, number) for number, letter in enumerate(text)]


def numbers(shallow: str, deeper: str) -> list[int | None]:
    found = inserted(heights(shallow), heights(deeper))
    return [None if height is None else height.made for height in found]


@pytest.mark.parametrize(
    ("shallow", "deeper", "same"),
    [
        ("xabaay", "xabaabaay", [0, 1, 2, 6, 7, 8]),  # in the middle of the layers, not behind "aay"
        ("eababXEABABY", "eabababXEABABABY", [0, 1, 2, 5, 6, 7, 8, 9, 10, 13, 14, 15]),  # in two places
        ("abc", "abc", [0, 1, 2]),
    ],
)
def test_moments_of_a_call_lie_around_the_layer_that_another_has_more(
    shallow: str, deeper: str, same: list[int]
) -> None:
    assert numbers(shallow, deeper) == same


def test_moments_of_a_call_that_makes_something_else_match_in_the_longest_equal_stretches() -> None:
    assert numbers("abxcd", "ababycd") == [0, 1, None, 5, 6]
