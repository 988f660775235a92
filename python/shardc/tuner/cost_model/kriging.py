"""Gaussian process over the values of parameters: predictions from trials at neighbouring points.

Trees need dozens of trials to predict a task; neighbours help from the first trials on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Space

LENGTHS = (0.25, 0.5, 1.0, 2.0)
"""Length scales, of which the likelihood selects one. A parameter's whole range is 1."""
NOISE = (0.02, 0.1, 0.5, 2.0)
"""Shares of noise in the variance, of which the likelihood selects one.

Noise is that of measurements, and effects that no parameter explains.
"""


def places(space: Space, points: Sequence[Point]) -> np.ndarray:
    """Return coordinates, [points, parameters of all sketches]: each value's position in its range, 0 to 1.

    Points of different sketches are far apart.
    """
    found = np.zeros((len(points), sum(1 + len(s.parameters) for s in space.sketches)))
    first = 0
    for sketch in space.sketches:
        scale = [(p.name, sorted(p.values)) for p in sketch.parameters]
        for row, point in enumerate(points):
            if point.sketch == sketch.name:
                found[row, first] = 4.0
                config = point.config
                for at, (name, values) in enumerate(scale, first + 1):
                    found[row, at] = _place(values, config[name])
        first += 1 + len(scale)
    return found


def _place(values: Sequence[int], value: int) -> float:
    """Return a value's position among ``values``, interpolated by logarithm if it is none of them."""
    if value in values:
        return values.index(value) / max(1, len(values) - 1)
    return float(np.interp(math.log(value), [math.log(v) for v in values], np.linspace(0, 1, len(values))))


def interpolated(known: np.ndarray, values: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Return the expected value at ``asked``, from ``values`` at ``known``. Far away it is their mean."""
    apart, across = _squares(known, known), _squares(known, asked)
    centred = values - values.mean()
    most, taken, weights = -math.inf, LENGTHS[0], centred
    for length in LENGTHS:
        alike = np.exp(-0.5 * apart / length**2)
        for noise in NOISE:
            factor = np.linalg.cholesky(alike + noise * np.eye(len(known)))
            solved = np.linalg.solve(factor, centred)
            variance = max(1e-8, float(solved @ solved) / len(known))
            likelihood = -0.5 * len(known) * math.log(variance) - float(np.log(np.diag(factor)).sum())
            if likelihood > most:
                most, taken, weights = likelihood, length, np.linalg.solve(factor.T, solved)
    return values.mean() + np.exp(-0.5 * across / taken**2).T @ weights


def _squares(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the squared distances between all pairs of rows."""
    squares = (one**2).sum(1)[:, None] + (other**2).sum(1)[None, :] - 2.0 * one @ other.T
    return np.maximum(squares, 0.0)
