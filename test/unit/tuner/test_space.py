"""A space has each legal point once, with any pinned, forbidden and added points."""

import random

import pytest

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Parameter, Sketch, Space
from shardc.diagnostics.tuner import EmptySpace


def product_at_most(limit):
    return lambda v: None if v["m"] * v["n"] <= limit else f"m * n is above {limit}"


def sketch(limit=8):
    sizes = (1, 2, 4, 8)
    return Sketch(
        "tiled",
        (Parameter("m", sizes), Parameter("n", sizes)),
        product_at_most(limit),
        lambda v: 1 / (v["m"] * v["n"]),
    )


def test_points_are_the_legal_ones_each_once():
    points = list(Space((sketch(),)).points())
    assert len(points) == len(set(points)) == 10
    assert all(p.config["m"] * p.config["n"] <= 8 for p in points)


def test_what_is_pinned_and_added_holds():
    mine = Point.of("tiled", {"m": 1, "n": 3})
    gone = Point.of("tiled", {"m": 1, "n": 8})
    space = Space((sketch(4),), pinned={"m": 1}, added=(mine,))
    assert list(space.points()) == [mine, *(Point.of("tiled", {"m": 1, "n": n}) for n in (1, 2, 4))]
    assert space.refusal(gone) == "m * n is above 4"
    assert space.refusal(Point.of("tiled", {"m": 2, "n": 2})) == "m is pinned to 1"
    assert space.refusal(Point.of("flat", {})) == "there is no sketch 'flat'"
    assert space.ranked(2) == [mine, Point.of("tiled", {"m": 1, "n": 4})]


def test_samples_are_legal_and_reach_every_point():
    space = Space((sketch(),))
    draw = random.Random(0)
    assert {space.sample(draw) for _ in range(500)} == set(space.points())


def test_a_space_of_one_legal_point_is_found_and_an_empty_one_named():
    assert Space((sketch(1),)).sample(random.Random(0)) == Point.of("tiled", {"m": 1, "n": 1})
    with pytest.raises(EmptySpace, match="tiled"):
        Space((sketch(0),)).sample(random.Random(0))
