"""Layers as repetitions of calls."""

from __future__ import annotations

from shardc.passes.search.fold import longest_repetition

LAYER = list(range(10, 20))


def test_the_longest_repetition_is_the_layers() -> None:
    first, period, length = longest_repetition([1, 2, *LAYER * 5, 3])
    assert (first, period, length) == (2, 10, 50)


def test_what_begins_in_the_middle_of_a_layer_is_left_alone() -> None:
    first, period, length = longest_repetition([*LAYER[7:], *LAYER * 3, *LAYER[:2]])
    assert period == 10
    assert length == 30
    assert first in range(6)


def test_no_layers() -> None:
    assert longest_repetition(list(range(40)))[2] == 0
    assert longest_repetition([])[2] == 0
