"""Draws of Python's ``random`` on which a step does not depend.

Layer drop is often written as ``if self.training and random.uniform(0, 1) < self.layerdrop``, which draws
even with a probability of 0. In a trace such a draw is an interval: a comparison that has the same answer for
all of its numbers is that answer. Any other use fails.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Draw:
    """A number between ``low`` and ``high``, both included, that a compiled step cannot know."""

    low: float
    high: float

    def __lt__(self, other: float) -> bool:
        return self._decided(self.high < other, self.low >= other)

    def __le__(self, other: float) -> bool:
        return self._decided(self.high <= other, self.low > other)

    def __gt__(self, other: float) -> bool:
        return self._decided(self.low > other, self.high <= other)

    def __ge__(self, other: float) -> bool:
        return self._decided(self.low >= other, self.high < other)

    def __eq__(self, other: object) -> bool:
        raise TypeError("whether a random number equals another differs from step to step")

    def __bool__(self) -> bool:
        raise TypeError("whether a random number is 0 differs from step to step")

    def _decided(self, always: bool, never: bool) -> bool:
        if not (always or never):
            raise TypeError("the answer of a comparison differs from step to step")
        return always


@contextmanager
def undrawn() -> Iterator[None]:
    """Replace draws of floats by intervals. Other functions of ``random`` still draw."""
    last = math.nextafter(1, 0)  # random() is less than 1
    draws: dict[str, Callable[..., Draw]] = {
        "random": lambda: Draw(0.0, last),
        "uniform": lambda a, b: Draw(min(a, b), max(a, b)),
    }
    kept = {name: getattr(random, name) for name in draws}
    try:
        for name, draw in draws.items():
            setattr(random, name, draw)
        yield
    finally:
        for name, function in kept.items():
            setattr(random, name, function)
