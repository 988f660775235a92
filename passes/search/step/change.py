"""Values that one node of a step's graph makes and another needs, possibly in another layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shardc.passes.search.layout import Layout, parts, parts_of


@dataclass
class Made:
    """Node that makes a value, the value's layout in each state, and the number of values it stands for."""

    node: int
    layouts: tuple[Layout, ...]
    weight: float


class When(NamedTuple):
    """When layouts of a value change.

    ``is_late``: beside kernels of the backward. ``gathers``: number of times that it is gathered in a step:
    once, or once for each micro-batch. ``is_weights``: with the calls that only gradients of weights need.
    ``major``: the dim along which its collectives are packed with others of the phase; None if they are not.
    ``beside_s``: least seconds of the calls that run until the value is needed, beside sums over devices.
    """

    is_late: bool = False
    gathers: int = 1
    is_weights: bool = False
    major: int | None = None
    beside_s: float = 0.0


ONCE, STATE = When(), When(major=0)
"""When results of a step change, and its new state."""


@dataclass
class Change:
    """Value that one node makes and another needs, possibly in another layout.

    ``weight``: number of values that it stands for.
    """

    shape: tuple[int, ...]
    element_bytes: int
    made: Made
    needed: Made
    when: When
    weight: float = 0.0

    def times(self, made: Layout, needed: Layout, sizes: Sequence[int]) -> int:
        """Return how often a step makes the change between two layouts."""
        return self.when.gathers if parts(needed, sizes) < parts(made, sizes) else 1

    def all_times(self, sizes: tuple[int, ...]) -> np.ndarray:
        """Return :meth:`times` of each layout that is made (row) and each that is needed (column)."""
        made, needed = (parts_of(of.layouts, sizes) for of in (self.made, self.needed))
        return np.where(needed[None, :] < made[:, None], self.when.gathers, 1)
