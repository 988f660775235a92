"""The cheapest choice of mesh, stages, micro-batches and recomputation, with a bound on all.

First a choice of each number of stages is looked at, then the neighbours of the best one, and then, while
there is time, all others. No choice takes less than its kernels alone: those of the step, cut in the fastest
ways, times the waiting of its pipeline. So most choices are passed over, and the search inside of others ends
when its own bound says that they are no better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from time import perf_counter

from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.clock import Clock
from shardc.planning.auto.space import RECOMPUTED, Choice

Find = Callable[[Choice, float], Found | Unfit]
"""What the search inside of a choice finds below so many seconds a step."""
LIMIT_S = 30.0
"""Seconds after which no other choice is looked at, where nobody says how many."""


@dataclass(frozen=True)
class Estimate:
    """What a search inside a choice found, in seconds a step and bytes on a device."""

    choice: Choice
    seconds: float
    bound_s: float
    held_bytes: float


@dataclass(frozen=True)
class Start:
    """Where a search begins: at the best choice of an earlier one of the same step, with other memory.

    ``floor_s``: what the kernels of forward and backward take at least.
    """

    choice: Choice
    floor_s: float


@dataclass
class Around:
    """What was found, the cheapest first, and the least seconds that any choice takes.

    ``looked_at``: how many of ``choices`` were searched inside; ``why``: why the search stopped;
    ``is_stopped``: whether its clock ended it; ``floor_s``: what the kernels of forward and backward take.
    """

    found: list[Estimate]
    bound_s: float
    looked_at: int
    choices: int
    why: str
    is_stopped: bool = False
    floor_s: float = 0.0

    @property
    def start(self) -> Start:
        """Where a later search may begin. Only of a search that found something."""
        return Start(self.found[0].choice, self.floor_s)

    @property
    def gap(self) -> float:
        """How much cheaper, of its own cost, another choice could be than the best at most."""
        return max(0.0, 1 - self.bound_s / self.found[0].seconds) if self.found else 1.0


def search_around(
    choices: Iterable[Choice],
    find: Find,
    limit_s: float = LIMIT_S,
    clock: Clock | None = None,
    start: Start | None = None,
) -> Around:
    """Look at choices by ``find``, for ``limit_s`` seconds and one more choice at most, or until ``clock`` is
    over, which ``find`` asks as well. ``start``: the choice to look at first.
    """
    search = _Search(list(choices), find, start)
    return search.run(limit_s, clock or Clock())


@dataclass
class _Search:
    choices: list[Choice]
    find: Find
    start: Start | None = None
    found: list[Estimate] = field(default_factory=list)
    bounds: dict[Choice, float] = field(default_factory=dict)
    """Seconds that a choice takes at least, of those that were looked at."""
    tight: dict[Choice, bool] = field(default_factory=dict)
    """Whether memory made a choice dearer, or impossible."""
    floor_s: float = 0.0
    """What the kernels of forward and backward take at least."""

    def __post_init__(self) -> None:
        if self.start is not None:
            self.floor_s = self.start.floor_s

    def run(self, limit_s: float, clock: Clock) -> Around:
        start_s, why, is_stopped = perf_counter(), "all choices were looked at, or can be no better", False
        for choice in self._order():
            if self._is_worth(choice):
                self._look(choice)
            if clock.is_over:
                why, is_stopped = clock.why, True
                break
            if perf_counter() - start_s > limit_s:
                why = f"time limit of {limit_s:g} s"
                break
        self.found.sort(key=lambda estimate: estimate.seconds)
        least = (self._least_s(choice) for choice in self.choices if not self._is_beaten(choice))
        bound_s = min(min(least, default=inf), self.best_s)
        return Around(self.found, bound_s, len(self.bounds), len(self.choices), why, is_stopped, self.floor_s)

    @property
    def best_s(self) -> float:
        return min((estimate.seconds for estimate in self.found), default=inf)

    def _order(self) -> Iterator[Choice]:
        """Where an earlier search ended, and its neighbours; one choice of each number of stages; neighbours
        of the best, as long as it changes; all others.
        """
        if self.start is not None:
            yield self.start.choice
            yield from [choice for choice in self.choices if _is_near(choice, self.start.choice)]
        yield from _spread([min(of, key=_first) for of in _by_stages(self.choices)])
        while self.found:
            best = min(self.found, key=lambda estimate: estimate.seconds)
            yield from [choice for choice in self.choices if _is_near(choice, best.choice)]
            if best.seconds <= self.best_s:
                break
        yield from sorted(self.choices, key=lambda choice: (choice.waiting, _first(choice)))

    def _is_worth(self, choice: Choice) -> bool:
        is_new = choice not in self.bounds
        return is_new and not self._is_beaten(choice) and self.floor_s * choice.waiting < self.best_s

    def _is_beaten(self, choice: Choice) -> bool:
        """Whether the same with less computed again, or without stages with fewer micro-batches, had memory
        enough: then it is no slower.
        """
        return any(
            not is_tight and other.stages == choice.stages and _is_less(other, choice)
            for other, is_tight in self.tight.items()
        )

    def _look(self, choice: Choice) -> None:
        found = self.find(choice, self.best_s)
        # The first cuts the calls that others do, or fewer.
        self.floor_s = self.floor_s or found.floor_s / choice.waiting
        if isinstance(found, Unfit):
            self.bounds[choice] = found.bound_s
            if found.bound_s == inf:
                self.tight[choice] = True
            return
        solution = found.solution
        self.bounds[choice], self.tight[choice] = solution.bound_s, solution.is_tight
        self.found.append(Estimate(choice, solution.seconds, solution.bound_s, found.held_bytes))

    def _least_s(self, choice: Choice) -> float:
        return self.bounds.get(choice, self.floor_s * choice.waiting)


def _policy(choice: Choice) -> int:
    return RECOMPUTED.index(choice.recompute)


def _first(choice: Choice) -> tuple[float, int, int]:
    return choice.waiting, choice.micro_batches, _policy(choice)


def _by_stages(choices: Iterable[Choice]) -> list[list[Choice]]:
    found: dict[int, list[Choice]] = {}
    for choice in choices:
        found.setdefault(choice.stages, []).append(choice)
    return list(found.values())


def _spread(choices: Sequence[Choice]) -> Iterator[Choice]:
    """The first, the one in the middle, and so on with both halves: a good one comes soon."""
    if choices:
        yield choices[0]
        middle = (len(choices) + 1) // 2
        yield from _spread(choices[middle:])
        yield from _spread(choices[1:middle])


def _is_near(choice: Choice, best: Choice) -> bool:
    """Whether one thing differs: stages or micro-batches by a factor of two, or what is computed again."""
    ratios = (choice.stages / best.stages, choice.micro_batches / best.micro_batches)
    is_moved = [ratio != 1 for ratio in ratios] + [_policy(choice) != _policy(best)]
    return sum(is_moved) == 1 and all(0.5 <= ratio <= 2 for ratio in ratios)


def _is_less(other: Choice, choice: Choice) -> bool:
    """Whether a choice does all that another does, and more that only saves memory."""
    if other.micro_batches == choice.micro_batches:
        return _policy(other) < _policy(choice)
    is_turned = choice.stages == 1 and other.micro_batches < choice.micro_batches
    return is_turned and _policy(other) <= _policy(choice)
