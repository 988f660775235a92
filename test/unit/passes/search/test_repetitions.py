"""Layers as repetitions of calls."""

from __future__ import annotations

from shardc.passes.search.repetitions import STANDING, Repetition, longest_repetition, repetitions

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


def test_a_layer_with_one_product_is_folded_in_pairs() -> None:
    products = [False, True, *[number == 12 for number in LAYER] * 6]
    assert longest_repetition([1, 2, *LAYER * 6], products=products) == (2, 20, 60)
    assert longest_repetition([1, 2, *LAYER * 7], products=[False, True, *products[2:12] * 7])[1:] == (20, 60)
    assert longest_repetition(LAYER * 9, products=products[2:12] * 9)[1:] == (20, 80)
    two = [number in (12, 17) for number in LAYER]
    assert longest_repetition(LAYER * 6, products=two * 6) == (0, 10, 60)


def test_layers_of_another_kind_that_end_alike_stay_whole() -> None:
    other = [*range(30, 37), *LAYER[7:]]
    found = repetitions([1, *other * 3, *LAYER * STANDING, 2], is_few=True)
    assert [*found] == [Repetition(31, 10, 40), Repetition(1, 10, 30)]
