"""Ways to shard a call."""

from __future__ import annotations

from shardc.dialects.dist.axis import Axis
from shardc.dialects.rules.rule import Rule
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.layout import SUM, WHOLE
from shardc.passes.search.ways import Shapes, WaysOf

MATMUL = Rule(
    ((("i",), ("k",)), (("k",), ("j",))),
    ((("i",), ("j",)),),
    {"i": 8, "k": 6, "j": 4},
    reduce={"k": "sum"},
    linear=(frozenset({0}), frozenset({1})),
)
SHAPES = Shapes(((8, 6), (6, 4)), ((8, 4),))


def test_a_product_is_cut_along_each_factor_or_lets_sums_pass() -> None:
    ways = {way.choices[0]: way for way in WaysOf(SearchAxes((Axis("x", 1, 2),))).of(MATMUL, SHAPES)}
    assert set(ways) == {None, "i", "k", "j", 0, 1}
    assert ways["i"].operands == ((0,), (WHOLE,))
    assert ways["k"].operands == ((1,), (0,))
    assert ways["k"].results == ((SUM,),)
    assert ways["k"].share == 0.5
    assert ways[1].operands == ((WHOLE,), (SUM,))
    assert ways[1].results == ((SUM,),)
    assert ways[1].passing() == (1, (0,))


def test_axes_that_do_not_divide_cut_nothing() -> None:
    ways = WaysOf(SearchAxes((Axis("x", 1, 3),))).of(MATMUL, SHAPES)
    assert {way.choices[0] for way in ways} == {None, "k", 0, 1}


def test_two_axes_of_one_factor_stand_in_the_meshs_order() -> None:
    x, y = Axis("x", 1, 2), Axis("y", 1, 2)
    ways = WaysOf(SearchAxes((x, y))).of(MATMUL, SHAPES)
    both = next(way for way in ways if way.choices == ("i", "i"))
    assert both.cuts((x, y)) == {"i": (x, y)}
    assert both.share == 0.25
    assert all(way.choices != (0, 1) for way in ways)


def test_blocks_of_a_reshape_must_say_the_cut() -> None:
    """A factor is cut where those more major in its dim are cut whole."""
    rule = Rule(((("b",), ("s",)),), ((("b", "s"),),), {"b": 2, "s": 4})
    shapes = Shapes(((2, 4),), ((8,),))
    one = WaysOf(SearchAxes((Axis("x", 1, 2),))).of(rule, shapes)
    assert {way.choices for way in one} == {(None,), ("b",)}
    two = WaysOf(SearchAxes((Axis("x", 1, 2), Axis("y", 1, 2)))).of(rule, shapes)
    assert ("b", "s") in {way.choices for way in two}
    assert ("s", "b") not in {way.choices for way in two}
