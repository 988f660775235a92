"""Mutation and crossover keep points legal and pins fixed in every space."""

import random

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from surface import space

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Parameter, Sketch, Space
from shardc.tuner.mutator import crossed, mutated


@st.composite
def spaces(draw):
    """Of one or two sketches of up to four parameters, with a bound on their sum, and perhaps a pin."""
    sketches = []
    for name in draw(st.sampled_from([["one"], ["one", "two"]])):
        values = st.lists(st.integers(1, 64), min_size=1, max_size=6, unique=True).map(tuple)
        parameters = [Parameter(n, draw(values)) for n in draw(st.sampled_from(["a", "ab", "abc", "abcd"]))]
        most = draw(st.integers(1, 256))
        sketches.append(
            Sketch(
                name,
                tuple(parameters),
                lambda v, most=most: "too much" if sum(v.values()) > most else None,
                lambda v: 1.0,
            )
        )
    first = sketches[0].parameters[0]
    pins = draw(st.sampled_from([{}, {"a": draw(st.sampled_from(first.values))}]))
    return Space(tuple(sketches), pinned=pins)


@given(spaces(), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_neighbours_and_children_are_legal(of, draw):
    points = list(of.points())
    assume(points)
    one, other = draw.choice(points), draw.choice(points)
    for made in (mutated(of, one, draw), crossed(of, one, other, draw)):
        assert made is None or made in points
    assert mutated(of, one, draw) != one
    child = crossed(of, one, other, draw)
    assert child is None or all(child.config[n] in (one.config[n], other.config[n]) for n in child.config)


def test_every_point_is_reached_by_mutation():
    of = space((1, 2, 4))
    draw, seen, at = random.Random(0), set(), next(of.points())
    for _ in range(2000):
        at = mutated(of, at, draw)
        seen.add(at)
    assert seen == set(of.points())


def test_a_user_s_own_point_has_neighbours():
    mine = Point.of("tiled", {"tile_m": 3, "tile_n": 5, "block_k": 7})
    of = space(added=(mine,))
    made = mutated(of, mine, random.Random(0))
    assert made is not None and made != mine and of.refusal(made) is None


def test_a_point_that_lacks_a_pinned_parameter_has_neighbours_with_the_pin():
    """A similar kernel's point may come from a smaller sketch."""
    of = space((1, 2, 4), pinned={"block_k": 4})
    made = mutated(of, Point.of("tiled", {"tile_m": 2, "tile_n": 2}), random.Random(0))
    assert made is not None and made.config["block_k"] == 4


def test_points_of_two_sketches_have_no_child():
    of = space()
    assert crossed(of, next(of.points()), Point.of("other", {"tile_m": 1}), random.Random(0)) is None


def test_a_space_of_one_point_has_no_neighbour():
    of = space((4,))
    assert mutated(of, next(of.points()), random.Random(0)) is None
