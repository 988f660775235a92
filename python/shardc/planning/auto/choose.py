"""Search for the cheapest choice of mesh, stages, micro-batches and recomputation, with a bound on all.

The search tries one choice for each number of stages, and, as long as none fits, the same with the most
recomputation, without stages last. Then it tries the neighbours of the best, and then, while there is time,
the others, each time the one with the lowest bound. A choice takes at least the time of its kernels in
their fastest shardings, times the pipeline's waiting. It also takes at least as long as a choice with the
same mesh that recomputes less and has fewer micro-batches would take in enough memory, but for the waiting
that more micro-batches save. These bounds rule out most choices without an inner search. For others, the
inner search stops as soon as its own bound shows that they are no better.

While one inner search runs, the next is prepared (:mod:`shardc.planning.auto.ahead`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter

from shardc.dialects.collection import collection_paused
from shardc.options.recompute import Policy
from shardc.passes.search.choose import Unfit
from shardc.passes.search.clock import Clock
from shardc.planning.auto.ahead import Ahead, Find, Prepare
from shardc.planning.auto.space import RECOMPUTED, Choice

_SHORT = 0.8
"""Part of memory beyond which a choice that recomputes nothing is not among the first that are tried."""
LIMIT_S = 30.0
"""Default of the seconds after which the search starts no other choice."""


@dataclass(frozen=True)
class Estimate:
    """Result of an inner search: seconds per step, and bytes on a device."""

    choice: Choice
    seconds: float
    bound_s: float
    held_bytes: float


@dataclass(frozen=True)
class Start:
    """Start of a search: the best choice of an earlier search of the same step with other memory.

    ``floor_s``: lower bound, in seconds, on the kernels of forward and backward.
    """

    choice: Choice
    floor_s: float


@dataclass
class Around:
    """Result of the outer search: the estimates, the cheapest first, and a bound on all choices.

    ``bound_s``: lower bound on the seconds of any choice. ``looked_at``: how many of ``choices`` got an inner
    search. ``why``: why the search stopped. ``is_stopped``: True if its clock ended it. ``floor_s``: lower
    bound, in seconds, on the kernels of forward and backward.
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
        """Start for a later search. Requires that this search found something."""
        return Start(self.found[0].choice, self.floor_s)

    @property
    def gap(self) -> float:
        """Largest possible saving of another choice, as a part of the best one's cost."""
        return max(0.0, 1 - self.bound_s / self.found[0].seconds) if self.found else 1.0


def search_around(
    choices: Iterable[Choice],
    find: Find,
    limit_s: float = LIMIT_S,
    clock: Clock | None = None,
    start: Start | None = None,
    prepare: Prepare | None = None,
) -> Around:
    """Search the choices with ``find``.

    ``limit_s``: seconds after which no other choice is started. ``clock``: ends the search at once; ``find``
    observes it, too. ``start``: the choice to try first. ``prepare``: does a part of ``find`` beforehand,
    while another search runs.
    """
    with collection_paused(), Ahead(find, prepare) as ahead:
        return _Search(list(choices), ahead, limit_s, clock or Clock(), start).run()


@dataclass
class _Search:
    choices: list[Choice]
    ahead: Ahead
    limit_s: float
    clock: Clock
    start: Start | None = None
    found: list[Estimate] = field(default_factory=list)
    bounds: dict[Choice, float] = field(default_factory=dict)
    """Lower bound on the seconds of each choice that was tried."""
    free: dict[Choice, float] = field(default_factory=dict)
    """Lower bound on the seconds of each choice that was tried, if it had enough memory."""
    tight: dict[Choice, bool] = field(default_factory=dict)
    """True for a choice that limited memory made slower or impossible."""
    needs: dict[Policy, list[float]] = field(default_factory=lambda: defaultdict(list))
    """For choices without a plan: the part of memory that one micro-batch in flight needs at least."""
    floor_s: float = 0.0
    """Lower bound, in seconds, on the kernels of forward and backward."""

    def __post_init__(self) -> None:
        if self.start is not None:
            self.floor_s = self.start.floor_s

    def run(self) -> Around:
        self.end_s, is_stopped = perf_counter() + self.limit_s, False
        why = "all choices were considered, or cannot be better"
        while (choice := self._next()) is not None:
            self._look(choice)
            if self.clock.is_over:
                why, is_stopped = self.clock.why, True
                break
            if self._is_late:
                why = f"time limit of {self.limit_s:g} s"
                break
        self.found.sort(key=lambda estimate: estimate.seconds)
        least = (self._least_s(choice) for choice in self.choices if not self._is_beaten(choice))
        bound_s = min(min(least, default=inf), self.best_s)
        return Around(self.found, bound_s, len(self.bounds), len(self.choices), why, is_stopped, self.floor_s)

    @property
    def _is_late(self) -> bool:
        return perf_counter() > self.end_s

    @property
    def best_s(self) -> float:
        return min((estimate.seconds for estimate in self.found), default=inf)

    def _next(self, running: Choice | None = None) -> Choice | None:
        """Return the choice to try next, None if none is worth it.

        While one is ``running``, this is a guess: that it has a plan, which rules out more recomputation.
        """
        order = self._order(is_found=bool(self.found) or running is not None)
        if running is not None:
            order = (choice for choice in order if not _is_like(choice, running))
        return next(filter(self._is_worth, order), None)

    def _order(self, is_found: bool) -> Iterator[Choice]:
        """Yield choices in order: the start and its neighbours, one choice for each number of stages (and the
        one that recomputes the most, until something fits), the neighbours of the best, and all others.
        """
        if self.start is not None:
            yield self.start.choice
            yield from [choice for choice in self.choices if _is_near(choice, self.start.choice)]
        firsts = list(_spread([min(of, key=_first) for of in _by_stages(self.choices)]))
        for first in firsts:
            if is_found or not self._is_short(first):
                yield first
            if not is_found and first.stages > 1:
                yield self._least_memory(first)
        if not is_found:
            yield from map(self._least_memory, firsts)
        if self.found:
            best = min(self.found, key=lambda estimate: estimate.seconds)
            yield from [choice for choice in self.choices if _is_near(choice, best.choice)]
        yield from sorted(self.choices, key=lambda choice: (self._least_s(choice), _first(choice)))

    def _is_short(self, choice: Choice) -> bool:
        """Return True if the activations of a choice are expected to need nearly all memory or more.

        The expectation is the need of a choice without a plan, in proportion to the micro-batches in flight.
        """
        needs = (need * choice.stages / choice.micro_batches for need in self.needs[choice.recompute])
        return min(needs, default=0.0) > _SHORT

    def _least_memory(self, choice: Choice) -> Choice:
        """Return the variant of a choice that recomputes the most."""
        return max((other for other in self.choices if _is_like(other, choice)), key=_policy)

    def _is_worth(self, choice: Choice) -> bool:
        is_new = choice not in self.bounds
        return is_new and not self._is_beaten(choice) and self._least_s(choice) < self.best_s

    def _is_beaten(self, choice: Choice) -> bool:
        """Return True if a cheaper variant of the choice was tried and had enough memory: it is no slower.

        Variants recompute less or, without stages, have fewer micro-batches.
        """
        return any(
            not is_tight and other.stages == choice.stages and _is_less(other, choice)
            for other, is_tight in self.tight.items()
        )

    def _look(self, choice: Choice) -> None:
        cutoff_s = self.best_s

        def following() -> Choice | None:
            return None if self._is_late or self.clock.is_enough else self._next(running=choice)

        found = self.ahead.found(choice, cutoff_s, following)
        # The first choice recomputes nothing: it has the calls of later choices, or fewer.
        self.floor_s = self.floor_s or found.floor_s / choice.waiting
        if isinstance(found, Unfit):
            self.bounds[choice], self.free[choice] = found.bound_s, found.free_s
            if found.bound_s == inf:
                self.tight[choice] = True
                self.needs[choice.recompute].append(found.least * choice.micro_batches / choice.stages)
            return
        solution = found.solution
        self.bounds[choice], self.free[choice] = solution.bound_s, solution.free_s
        self.tight[choice] = solution.is_tight
        self.found.append(Estimate(choice, solution.seconds, solution.bound_s, found.held_bytes))

    def _least_s(self, choice: Choice) -> float:
        """Return a lower bound on the seconds of a choice."""
        if choice in self.bounds:
            return self.bounds[choice]
        others = (free_s * _saved(other, choice) for other, free_s in self.free.items())
        return max(self.floor_s * choice.waiting, *others, 0.0)


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
    """Yield choices by bisection: the first, the middle one, then both halves. A good one comes early."""
    if choices:
        yield choices[0]
        middle = (len(choices) + 1) // 2
        yield from _spread(choices[middle:])
        yield from _spread(choices[1:middle])


def _is_like(choice: Choice, other: Choice) -> bool:
    """Return True if at most recomputation differs."""
    return replace(choice, recompute=other.recompute) == other


def _is_near(choice: Choice, best: Choice) -> bool:
    """Return True if just one thing differs: stages or micro-batches by a factor of 2, or recomputation."""
    ratios = (choice.stages / best.stages, choice.micro_batches / best.micro_batches)
    is_moved = [ratio != 1 for ratio in ratios] + [_policy(choice) != _policy(best)]
    return sum(is_moved) == 1 and all(0.5 <= ratio <= 2 for ratio in ratios)


def _saved(other: Choice, choice: Choice) -> float:
    """Return the part of another choice's time that a choice takes at least, if both have enough memory.

    More micro-batches take no less work, but wait less; 0 if the choices have nothing in common.
    """
    is_turned = choice.micro_batches % other.micro_batches == 0 and choice.axes == other.axes
    is_more = is_turned and _policy(other) <= _policy(choice)
    return min(1.0, choice.waiting / other.waiting) if is_more else 0.0


def _is_less(other: Choice, choice: Choice) -> bool:
    """Return True if ``choice`` is ``other`` with additions that only save memory."""
    if other.micro_batches == choice.micro_batches:
        return _policy(other) < _policy(choice)
    is_turned = choice.stages == 1 and other.micro_batches < choice.micro_batches
    return is_turned and _policy(other) <= _policy(choice)
