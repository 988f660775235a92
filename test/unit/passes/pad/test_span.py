"""Padded parts of dims, through splits and merges."""

from __future__ import annotations

import pytest

from shardc.passes.pad.span import Span, is_tail, joined, of_dim, of_factors, padded_size, segments

BATCH = Span(15, 3, 4)
"""Three sequences of 15 tokens, padded to four."""


def test_lowest_terms() -> None:
    """24 rows padded to 32 are 3 heads of 8 padded to 4."""
    assert Span(1, 24, 32) == Span(8, 3, 4)


@pytest.mark.parametrize(
    ("size", "spans", "padded", "tail"),
    [
        (45, (BATCH,), 60, True),
        (45, (Span(1, 15, 16),), 48, False),
        (45, (BATCH, Span(1, 15, 16)), 64, False),
        (7, (), 7, True),
    ],
)
def test_sizes(size: int, spans: tuple[Span, ...], padded: int, tail: bool) -> None:
    assert padded_size(size, spans) == padded
    assert is_tail(size, spans) == tail


def test_a_merged_dim_deals_its_padding_to_its_factors() -> None:
    sizes = {"b": 3, "s": 15}
    assert of_factors(("b", "s"), sizes, (BATCH,)) == {"b": (Span(1, 3, 4),)}
    assert of_dim(("b", "s"), sizes, {"b": (Span(1, 3, 4),)}) == (BATCH,)
    assert of_dim(("b",), sizes, {"b": (Span(1, 3, 4),)}) == (Span(1, 3, 4),)


def test_an_empty_dim_has_no_padding() -> None:
    """The keys of a cache that is still empty: ``cat`` joins them to those of the step."""
    assert of_factors(("b", "s"), {"b": 3, "s": 0}, (BATCH,)) == {}
    assert of_dim(("b", "s"), {"b": 3, "s": 0}, {"b": (Span(1, 3, 4),)}) == ()


def test_padding_across_two_factors_fits_into_none() -> None:
    """24 rows padded to 26 are no whole heads of 8."""
    assert of_factors(("h", "d"), {"h": 3, "d": 8}, (Span(1, 24, 26),)) == {}
    assert of_factors(("n",), {"n": 24}, (Span(1, 24, 26),)) == {"n": (Span(1, 24, 26),)}


def test_joined() -> None:
    tokens = Span(1, 15, 16)
    assert joined((BATCH,), tokens) == joined((tokens,), BATCH) == (BATCH, tokens)
    assert joined((BATCH,), BATCH) == (BATCH,)
    assert joined((BATCH,), Span(1, 45, 46)) == (BATCH,), "what is there already stays"


def test_segments() -> None:
    tokens = Span(1, 15, 16)
    assert segments(45, (BATCH,)) == [(3, 4, BATCH), (15, 15, None)]
    assert segments(90, (BATCH,)) == [(2, 2, None), (3, 4, BATCH), (15, 15, None)]
    assert segments(45, (BATCH, tokens)) == [(3, 4, BATCH), (15, 16, tokens)]
    assert segments(7, ()) == [(7, 7, None)]
