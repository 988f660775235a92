"""Users' constraints on spaces: JSON files, and errors that name the wrong entry and similar names."""

import pytest

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Parameter, Sketch, Space
from shardc.diagnostics.tuner import MalformedConstraints, UnknownConstraint
from shardc.tuner.space.constraints import check_names, constrain, read_constraints

SIZES = (1, 2, 4)
SKETCH = Sketch(
    "tiled",
    (Parameter("tile_m", SIZES), Parameter("tile_n", SIZES)),
    lambda v: None if v["tile_m"] * v["tile_n"] <= 8 else "more than 8",
    lambda v: 1 / (v["tile_m"] * v["tile_n"]),
)
SPACE = Space((SKETCH,))


def test_pins_forbids_and_added_points_hold():
    text = (
        '{"pin": {"tile_m": 2}, "forbid": [{"tile_n": 4}], "add": [{"sketch": "tiled", "tile_m": 2, '
        '"tile_n": 3}]}'
    )
    constraints = read_constraints(text)
    check_names(constraints, [SPACE])
    points = list(constrain(SPACE, constraints).points())
    assert points == [Point.of("tiled", {"tile_m": 2, "tile_n": n}) for n in (3, 1, 2)]
    said = constrain(SPACE, constraints).refusal(Point.of("tiled", {"tile_m": 2, "tile_n": 4}))
    assert said == 'forbidden by the user: {"tile_n": 4}'


def test_what_is_for_other_kernels_is_left_to_them():
    constraints = read_constraints('{"pin": {"rows": 4}, "forbid": [{"sketch": "rows", "tile_m": 1}]}')
    assert list(constrain(SPACE, constraints).points()) == list(SPACE.points())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "not an object"),
        ('{"pin": {"tile_m": "six"}}', 'tile_m must be an integer of at least 1, not "six"'),
        ('{"pin": {"tile_m": true}}', "not true"),
        ('{"forbid": {"tile_m": 1}}', "forbid must be a list"),
        ('{"add": [{"tile_m": 1}]}', "must name its sketch"),
        ('{"add": [3]}', "add has 3"),
    ],
)
def test_what_cannot_be_read_is_named(text, said):
    with pytest.raises(MalformedConstraints, match=said) as error:
        read_constraints(text, "constraints.json")
    assert "at: constraints.json" in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"pins": {}}', "entry 'pins'\n  try: known names are pin"),
        ('{"pin": {"tile_mm": 1}}', "parameter 'tile_mm'\n  try: known names are tile_m"),
        ('{"forbid": [{"sketch": "tild"}]}', "sketch 'tild'\n  try: known names are tiled"),
    ],
)
def test_unknown_names_come_with_those_that_are_like_them(text, said):
    with pytest.raises(UnknownConstraint) as error:
        check_names(read_constraints(text), [SPACE])
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('"tile_m": 2', "missing tile_n"),
        ('"tile_m": 2, "tile_n": 2, "rows": 1', "unknown rows"),
        ('"tile_m": 4, "tile_n": 4', "illegal: more than 8"),
    ],
)
def test_points_to_add_are_whole_and_legal(entry, said):
    constraints = read_constraints(f'{{"add": [{{"sketch": "tiled", {entry}}}]}}')
    with pytest.raises(MalformedConstraints, match=said):
        constrain(SPACE, constraints)
