"""Mutation and crossover of points."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Mapping

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Parameter, Sketch, Space

TRIES = 16
"""Number of random changes to try before a point counts as having no legal neighbour."""
STEP = 0.7
"""Probability that a parameter moves to an adjacent value; otherwise it moves to any value."""
AGAIN = 0.3
"""Probability that one more parameter changes, too."""


def mutated(space: Space, point: Point, draw: random.Random) -> Point | None:
    """Return a legal point that differs in a few parameters, mostly by one step; None if none is found."""
    sketch = space.sketch(point.sketch)
    if sketch is None:
        return None
    free = [p for p in sketch.parameters if p.name not in space.pinned and len(p.values) > 1]
    for _ in range(TRIES if free else 0):
        values = point.config
        for parameter in _some(free, draw):
            values[parameter.name] = _moved(parameter, values.get(parameter.name, parameter.values[0]), draw)
        found = _legal(space, sketch, values)
        if found is not None and found != point:
            return found
    return None


def crossed(space: Space, one: Point, other: Point, draw: random.Random) -> Point | None:
    """Return a legal mix of two points of one sketch; None if there is none that is neither of them."""
    sketch = space.sketch(one.sketch)
    if sketch is None or one.sketch != other.sketch:
        return None
    for _ in range(TRIES):
        mixed = {name: draw.choice((value, other.config.get(name, value))) for name, value in one.values}
        found = _legal(space, sketch, mixed)
        if found is not None and found not in (one, other):
            return found
    return None


def _some(parameters: list[Parameter], draw: random.Random) -> list[Parameter]:
    """Draw one parameter, or a few."""
    count = 1
    while count < len(parameters) and draw.random() < AGAIN:
        count += 1
    return draw.sample(parameters, count)


def _moved(parameter: Parameter, value: int, draw: random.Random) -> int:
    """Draw another value of a parameter. A user's own value counts as the next larger regular one."""
    values = parameter.values
    at = values.index(value) if value in values else min(bisect_left(sorted(values), value), len(values) - 1)
    if draw.random() < STEP:
        near = [values[i] for i in (at - 1, at + 1) if 0 <= i < len(values)]
        return draw.choice(near)
    return draw.choice([v for v in values if v != value])


def _legal(space: Space, sketch: Sketch, values: Mapping[str, int]) -> Point | None:
    """Return the point with these values, or None if it is not legal."""
    ordered = {p.name: space.pinned.get(p.name, values.get(p.name, p.values[0])) for p in sketch.parameters}
    point = Point.of(sketch.name, ordered)
    return point if space.refusal(point) is None else None
