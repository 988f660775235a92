"""The search strategies by name."""

from __future__ import annotations

import random
from collections.abc import Callable

from shardc.backends.tuning.space import Space
from shardc.diagnostics.tuner import UnknownStrategy
from shardc.tuner.search_strategy.analytic import Analytic
from shardc.tuner.search_strategy.base import Score, SearchStrategy
from shardc.tuner.search_strategy.evolutionary import Evolutionary
from shardc.tuner.search_strategy.exhaustive import Exhaustive
from shardc.tuner.search_strategy.random import Random

STRATEGIES: dict[str, Callable[[Space, random.Random, Score], SearchStrategy]] = {
    "evolutionary": Evolutionary,
    "analytic": lambda space, draw, score: Analytic(space, draw),
    "random": lambda space, draw, score: Random(space, draw),
    "exhaustive": Exhaustive,
}


def check_strategy(name: str) -> None:
    """Raises UnknownStrategy, which lists those that there are."""
    if name not in STRATEGIES:
        raise UnknownStrategy(strategy=name, known=", ".join(STRATEGIES))


def make_strategy(name: str, space: Space, draw: random.Random, score: Score) -> SearchStrategy:
    """The strategy of this name for a space. Raises UnknownStrategy."""
    check_strategy(name)
    return STRATEGIES[name](space, draw, score)
