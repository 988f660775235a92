"""Search for the cheapest choice of mesh, stages, micro-batches, schedule and recomputation, with a bound on
all.

The search tries one choice for each number of stages: under 1F1B, which holds the least, the one that waits
the least of those that are not expected to lack memory, by what others lacked. As long as none fits, it also
tries the one of the same parts that needs the least memory, without stages last. Then it tries the neighbours
of the best, and then, while there is time, the others, each time the one with the lowest bound. Choices that
are expected to lack memory are last. If one does, so do all schedules of the same step that hold more.

A choice takes at least the time of its kernels in their fastest shardings, times the pipeline's waiting. It
also takes at least as long as a choice with the same mesh that recomputes less and has fewer micro-batches
would take in enough memory, but for the waiting that more micro-batches, or another schedule, save. Messages
between stages, and what the slowest stage takes longer than others, come on top. These bounds rule out most
choices without an inner search. For others, the inner search stops as soon as its own bound shows that they
are no better.

While one inner search runs, the next one begins (:mod:`shardc.planning.auto.ahead`).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from time import perf_counter

from shardc.cost.schedule_form import ONE_F_ONE_B
from shardc.dialects.collection import collection_paused
from shardc.options.recompute import Policy
from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.clock import Clock
from shardc.planning.auto.ahead import Ahead, Begin, Find
from shardc.planning.auto.pipelines.evictions import Evicting
from shardc.planning.auto.space import RECOMPUTED, Choice

_SHORT = 0.8
"""Part of memory beyond which a choice is expected to lack memory, and is tried after all others."""
_WEIGHTS = 1 / 3
"""Usual part of weights' gradients in the work of a micro-batch: forward, I and W take equally long."""
Pace = Callable[[Choice], tuple[float, float]]
"""Time of a choice's kernels relative to equal parts on the slowest device: all, and those of weights."""
_HASTE = 3.0
"""Until something is found, times of kernels beyond which the search of a choice ends: others come first."""
LIMIT_S = 120.0
"""Default of the seconds after which the search starts no other choice."""


@dataclass(frozen=True)
class Estimate:
    """Result of an inner search: seconds per step, and bytes on a device."""

    choice: Choice
    seconds: float
    bound_s: float
    held_bytes: float


@dataclass(frozen=True)
class Floor:
    """Lower bound on the seconds of kernels of forward and backward, without waiting.

    ``weights_s``: those that only gradients of weights need. ``rest_s``: all others.
    """

    rest_s: float = 0.0
    weights_s: float = 0.0

    @staticmethod
    def of(found: Found | Unfit, pace: tuple[float, float]) -> Floor:
        """Return the bound that the search of a choice of such a pace implies for all."""
        rest_s = found.floor_s - found.floor_weights_s
        return Floor(rest_s / pace[0], found.floor_weights_s / pace[1] if pace[1] else 0.0)

    def seconds(self, pace: tuple[float, float]) -> float:
        """Return the lower bound on the seconds of a choice of such a pace."""
        return self.rest_s * pace[0] + self.weights_s * pace[1]


@dataclass(frozen=True)
class Start:
    """Start of a search: the best choice of an earlier search of the same step with other memory."""

    choice: Choice
    floor: Floor


@dataclass
class Around:
    """Result of the outer search: the estimates, the cheapest first, and a bound on all choices.

    ``bound_s``: lower bound on the seconds of any choice. ``looked_at``: how many of ``choices`` got an inner
    search. ``why``: why the search stopped. ``is_stopped``: True if its clock ended it. ``left``: choices
    that were not found, with lower bounds on their seconds, the lowest first. ``needed_part``: the part of
    memory that any choice needs at least, if it is known that none has a plan.
    """

    found: list[Estimate]
    bound_s: float
    looked_at: int
    choices: int
    why: str
    is_stopped: bool = False
    floor: Floor = Floor()
    left: Sequence[tuple[Choice, float]] = field(default=(), compare=False)
    needed_part: float = field(default=0.0, compare=False)

    @property
    def start(self) -> Start:
        """Start for a later search. Requires that this search found something."""
        return Start(self.found[0].choice, self.floor)

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
    begin: Begin | None = None,
    added: Callable[[Choice], float] | None = None,
    least: Callable[[Choice], float] | None = None,
    known: Mapping[Choice, float] | None = None,
    pace: Pace | None = None,
    evicting: Evicting | None = None,
) -> Around:
    """Search the choices with ``find``.

    ``limit_s``: seconds after which no other choice is started. ``clock``: ends the search at once; ``find``
    observes it, too. ``start``: the choice to try first. ``begin``: begins a search that ``find`` would do,
    while another one runs. ``added``: seconds that a choice takes in addition to those of ``find``.
    ``least``: part of memory that a choice needs at least; those that need more than all are left out.
    ``known``: lower bounds on the seconds of choices that are known beforehand. ``pace``: how fast a choice's
    kernels are; default: as on equal devices. ``evicting``: what evictions of activations add to a plan that
    was found, and to any plan of its choice.
    """
    with collection_paused(), Ahead(find, begin) as ahead:
        all_s = {choice: added(choice) if added else 0.0 for choice in choices}
        paces = {choice: pace(choice) if pace else choice.waits for choice in all_s}
        given = ahead, limit_s, clock or Clock(), start, least, known or {}, evicting
        return _Search(all_s, paces, *given).run()


@dataclass
class _Search:
    choices: Mapping[Choice, float]
    """Choices, and the seconds that each takes in addition to those of its search."""
    paces: Mapping[Choice, tuple[float, float]]
    ahead: Ahead
    limit_s: float
    clock: Clock
    start: Start | None = None
    least_part: Callable[[Choice], float] | None = None
    known: Mapping[Choice, float] = field(default_factory=dict)
    evicting: Evicting | None = None
    found: list[Estimate] = field(default_factory=list)
    bounds: dict[Choice, float] = field(default_factory=dict)
    """Lower bound on the seconds of each choice that was tried."""
    least: dict[Choice, float] = field(default_factory=dict)
    """Lower bound on the seconds of each choice that follows from others that were tried."""
    beaten: set[Choice] = field(default_factory=set)
    """Choices that are no faster than a cheaper variant, which was tried and had enough memory.

    Variants recompute less, wait less, or, without stages, have fewer micro-batches. What they take in
    addition is no longer.
    """
    needs: dict[tuple[Policy, bool], list[float]] = field(default_factory=lambda: defaultdict(list))
    """For choices without a plan: the part of memory that the batch's activations need at least.

    By recomputation, and whether weights' gradients are computed later.
    """
    lacking: list[float] = field(default_factory=list)
    """The part of memory that each choice without a plan needs at least."""
    compared: set[Choice] = field(default_factory=set)
    """Choices of which the part of memory that they need at least was compared with all."""
    floor: Floor | None = None
    haste: float = _HASTE
    hasty: set[Choice] = field(default_factory=set)
    """Choices whose search ended in haste, because they take too long compared with their kernels."""

    def __post_init__(self) -> None:
        self.least.update(self.known)
        if self.start is not None:
            self._set_floor(self.start.floor)

    def run(self) -> Around:
        self.end_s, is_stopped = perf_counter() + self.limit_s, False
        why = "all choices were considered, or cannot be better"
        while (choice := self._next() or self._patiently()) is not None:
            self._look(choice)
            self.ahead.end(self._is_worth)
            if self.clock.is_over:
                why, is_stopped = self.clock.why, True
                break
            if self._is_late:
                why = f"time limit of {self.limit_s:g} s"
                break
        self.found.sort(key=lambda estimate: estimate.seconds)
        least = (self._least_s(choice) for choice in self.choices if choice not in self.beaten)
        bound_s = min(min(least, default=inf), self.best_s)
        counts = len(self.bounds.keys() | self.hasty), len(self.choices)
        known = {estimate.choice for estimate in self.found} | self.beaten
        left = [(choice, self._least_s(choice)) for choice in self.choices if choice not in known]
        left.sort(key=lambda pair: pair[1])
        # Choices that were left for want of time may need less.
        is_known = all(self._least_s(choice) == inf for choice in self.choices)
        floor, needed = self.floor or Floor(), min(self.lacking, default=0.0) if is_known else 0.0
        return Around(self.found, bound_s, *counts, why, is_stopped, floor, left, needed)

    def _set_floor(self, floor: Floor) -> Floor:
        """Take a bound on the time of all choices."""
        self.floor = floor
        for choice, more_s in self.choices.items():
            self.least[choice] = max(floor.seconds(self.paces[choice]) + more_s, self.known.get(choice, 0.0))
        return floor

    def _patiently(self) -> Choice | None:
        """Return the choice to try next if nothing was found in haste; None if there is none."""
        if self.found or not self.hasty:
            return None
        self.haste = inf
        self.hasty.clear()
        return self._next()

    @property
    def _is_late(self) -> bool:
        return perf_counter() > self.end_s

    @property
    def best_s(self) -> float:
        return min((estimate.seconds for estimate in self.found), default=inf)

    def _lacks(self, choice: Choice, part: float) -> None:
        """Take that a choice needs at least this part of memory, more than there is."""
        self.lacking.append(part)
        like = filter(choice.is_like, self.choices)
        self.least.update((other, inf) for other in like if _holds_no_less(other, choice))
        self.needs[choice.recompute, choice.form.is_split].append(part / choice.in_flight)

    def _next(self, running: Collection[Choice] = ()) -> Choice | None:
        """Return the choice to try next, None if none is worth it.

        It does not certainly lack memory, unless it is the first one, whose search gives a bound for all.

        While some are ``running``, this is a guess: that they have plans, which rules out those of the same
        parts that recompute more or wait longer.
        """
        while (choice := self._guess(running)) is not None:
            is_first = self.floor is None and not running
            if self.least_part is None or is_first or choice in self.compared:
                break
            self.compared.add(choice)
            part = self.least_part(choice)
            if part <= 1:
                break
            self._lacks(choice, part)
        return choice

    def _guess(self, running: Collection[Choice]) -> Choice | None:
        """Return the choice to try next, which may lack memory."""
        is_found = bool(self.found) or bool(running)
        order = self._order(is_found)
        if running:
            ruled_out = {c for c in self.choices if any(_is_less(other, c) for other in running)}
            order = (choice for choice in order if choice not in running and choice not in ruled_out)
        worth = list(filter(self._is_worth, order))
        likely = itertools.filterfalse(self._is_short, worth if is_found else ())
        chosen = next(likely, next(iter(worth), None))
        if chosen is None or not self._is_short(chosen):
            return chosen
        # If this one lacks memory, so do all schedules that hold more.
        return min(filter(chosen.is_like, worth), key=_held)

    def _order(self, is_found: bool) -> Iterator[Choice]:
        """Yield choices in order: the start and its neighbours, one choice for each number of stages (and the
        one with the least memory, until something fits), the neighbours of the best, and all others.
        """
        if self.start is not None:
            yield self.start.choice
            yield from [choice for choice in self.choices if _is_near(choice, self.start.choice)]
        firsts = list(_spread([self._first_of(choices) for choices in _by_stages(self.choices)]))
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

    def _first_of(self, choices: Iterable[Choice]) -> Choice:
        """Return the choice of a number of stages that waits the least, if it is not expected to lack memory.

        Its schedule is 1F1B, which holds the least; others are its neighbours. Until something fits, other
        choices without stages are left for later.
        """

        def key(choice: Choice) -> tuple[object, ...]:
            is_later = self._is_short(choice) and (choice.stages > 1 or bool(self.found))
            return is_later, choice.form != ONE_F_ONE_B, *_first(choice)

        return min(choices, key=key)

    def _is_short(self, choice: Choice) -> bool:
        """Return True if the activations of a choice are expected to need nearly all memory or more.

        The expectation is the need of a choice without a plan, in proportion to the micro-batches in flight.
        A schedule that delays weights' gradients needs no less than one that does not.
        """
        kinds = {False, choice.form.is_split}
        needs = [min(self.needs[choice.recompute, kind], default=0.0) for kind in kinds]
        return max(needs) * choice.in_flight > _SHORT

    def _least_memory(self, choice: Choice) -> Choice:
        """Return the variant of a choice that recomputes the most and holds the fewest micro-batches."""
        like = [other for other in self.choices if other.parts == choice.parts]
        return min(like, key=lambda other: (-_policy(other), _held(other)))

    def _is_worth(self, choice: Choice) -> bool:
        is_new = choice not in self.bounds and (bool(self.found) or choice not in self.hasty)
        return is_new and choice not in self.beaten and self._least_s(choice) < self.best_s

    def _look(self, choice: Choice) -> None:
        more_s = self.choices[choice]
        cutoff_s, is_hasty = self._cutoff(choice)

        def following(begun: Collection[Choice]) -> tuple[Choice, float | None] | None:
            after = None if self._is_late or self.clock.is_enough else self._next(begun)
            return after and (after, None if self.floor is None else self._cutoff(after)[0])

        found = self.ahead.found(choice, cutoff_s, following)
        # The first choice recomputes nothing: it has the calls of later choices, or fewer.
        floor = self.floor or self._set_floor(Floor.of(found, self.paces[choice]))
        free_s = found.free_s if isinstance(found, Unfit) else found.solution.free_s
        evicted_s, least_s = self.evicting(choice.candidate, found) if self.evicting else (0.0, 0.0)
        for other, seconds in self.choices.items():
            carried_s = self._carried(choice, free_s, other, floor) + seconds
            self.least[other] = max(self.least[other], carried_s)
        if isinstance(found, Unfit):
            bound_s = found.bound_s + least_s
            if is_hasty and cutoff_s <= bound_s < inf:
                self.hasty.add(choice)
                self.least[choice] = max(self.least[choice], bound_s + more_s)
                return
            self.bounds[choice] = bound_s + more_s
            if found.bound_s == inf:
                self._lacks(choice, found.least)
            return
        solution = found.solution
        seconds, bound_s = solution.seconds + more_s + evicted_s, solution.bound_s + more_s + least_s
        self.bounds[choice] = bound_s
        if not solution.is_tight and not evicted_s:
            variants = (other for other in self.choices if _is_less(choice, other))
            self.beaten.update(other for other in variants if more_s <= self.choices[other])
        self.found.append(Estimate(choice, seconds, bound_s, found.held_bytes))

    def _cutoff(self, choice: Choice) -> tuple[float, bool]:
        """Return the seconds that the search of a choice must beat, and whether it ends in haste."""
        if not self.found and self.floor is not None and self.haste < inf:
            return self.haste * self.floor.seconds(self.paces[choice]), True
        return self.best_s - self.choices[choice], False

    def _carried(self, other: Choice, free_s: float, choice: Choice, floor: Floor) -> float:
        """Return the least seconds of a choice if another one takes ``free_s`` in enough memory; 0 if
        unrelated.

        More micro-batches take no less work, nor does more recomputation. The kernels of ``floor`` wait as
        the schedules say. Whatever else the other choice does may be what waits the least here.
        """
        is_turned = choice.micro_batches % other.micro_batches == 0 and choice.axes == other.axes
        if not is_turned or choice.unequal != other.unequal or _policy(other) > _policy(choice):
            return 0.0
        mine, others = self.paces[choice], self.paces[other]
        ratio = min(1.0, *(a / b for a, b in zip(mine, others, strict=True) if b))
        return floor.seconds(mine) + ratio * max(0.0, free_s - floor.seconds(others))

    def _least_s(self, choice: Choice) -> float:
        """Return a lower bound on the seconds of a choice."""
        return self.bounds.get(choice, self.least.get(choice, 0.0))


def _policy(choice: Choice) -> int:
    return RECOMPUTED.index(choice.recompute)


def _first(choice: Choice) -> tuple[float, int, int]:
    waiting = (1 - _WEIGHTS) * choice.waiting + _WEIGHTS * choice.weights_waiting
    return waiting, choice.micro_batches, _policy(choice)


def _held(choice: Choice) -> tuple[float, int]:
    return choice.in_flight, choice.pending


def _holds_no_less(other: Choice, choice: Choice) -> bool:
    """Return True if another schedule of the same step holds no fewer micro-batches at any point."""
    return other.in_flight >= choice.in_flight and other.pending >= choice.pending


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


def _is_near(choice: Choice, best: Choice) -> bool:
    """Return True if one thing differs: stages or micro-batches by a factor of 2, recomputation, schedule,
    shares.
    """
    ratios = (choice.stages / best.stages, choice.micro_batches / best.micro_batches)
    is_moved = [ratio != 1 for ratio in ratios]
    is_moved += [_policy(choice) != _policy(best), choice.form != best.form, choice.shares != best.shares]
    return sum(is_moved) == 1 and all(0.5 <= ratio <= 2 for ratio in ratios)


def _is_less(other: Choice, choice: Choice) -> bool:
    """Return True if ``choice`` is another one with changes that only save memory."""
    is_related = other.stages == choice.stages and other.unequal == choice.unequal
    if not is_related or _policy(other) > _policy(choice) or other == choice:
        return False
    if other.micro_batches == choice.micro_batches:
        return other.form.is_no_slower(choice.form, choice.stages, choice.micro_batches)
    return choice.stages == 1 and other.micro_batches < choice.micro_batches
