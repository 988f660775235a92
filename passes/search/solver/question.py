"""Questions about cost function networks, and their answers, as messages between processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np


@dataclass(frozen=True)
class Network:
    """Seconds of each state of a node, and of each pair of states of an edge; infinite: impossible."""

    costs: Sequence[np.ndarray]
    edges: Mapping[tuple[int, int], np.ndarray]


@dataclass(frozen=True)
class Cheapest:
    """Cheapest choice of one state for each node; None if none was found that is wanted.

    ``bound_s``: lower bound on the seconds of all choices; infinite if a proof says that there is none.
    """

    chosen: list[int] | None
    bound_s: float


@dataclass(frozen=True)
class Question:
    """Question for a worker process.

    ``limit_s``: CPU seconds after which the best choice so far is the answer. ``most_s``: choices that take
    longer are not wanted.
    """

    network: Network
    limit_s: float
    most_s: float = inf
