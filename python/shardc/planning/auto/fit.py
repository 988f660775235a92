"""Repeated searches until the compiled plan fits. A search counts less memory than a compiled plan needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, prod
from typing import TypeVar

from shardc.cost.cluster.cluster import Cluster
from shardc.diagnostics.passes.pipeline import PipelineError
from shardc.diagnostics.passes.search import NoPlanFound, NoPlanYet
from shardc.diagnostics.text import size_text
from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.clock import Clock
from shardc.passes.search.dist_search import least_text
from shardc.planning.auto.ahead import Begun
from shardc.planning.auto.choose import LIMIT_S, Around, Estimate, Pace, Start, search_around
from shardc.planning.auto.pipelines.evictions import Evicting
from shardc.planning.auto.space import Choice
from shardc.planning.candidates import Candidate
from shardc.planning.price import Price, Priced
from shardc.runtime.report.logs import PLAN

_T = TypeVar("_T")
TRIES = 3
"""Maximum number of searches, each with less memory."""
FURTHER = 2
"""Maximum number of results that are priced after one that fits."""
OF_EACH_KIND = 5
"""The same on several kinds of device, whose stages are estimated less closely."""
_SPARE = 0.98
"""Margin: the next search gets this part of the memory that would have fitted exactly."""
_LEAST = 0.1
"""Least part of a device's memory that a search is given."""


@dataclass(frozen=True)
class Rooms:
    """Part of a device's memory that a search may use: of choices with so many stages, and of all others.

    What a search does not count depends on the number of stages above all: on what the fullest one has
    beyond the mean. It also depends on whether the schedule computes gradients of weights later.
    """

    others: float
    of_stages: Mapping[tuple[int, bool], float] = field(default_factory=dict)

    def of(self, choice: Choice) -> float:
        return self.of_stages.get(_schedule(choice), self.others)

    def candidate(self, choice: Choice) -> Candidate:
        """Return a choice as a candidate with its memory."""
        return replace(choice.candidate, room=self.of(choice))

    def lowered(self, choice: Choice, room: float) -> Rooms:
        """Return the parts after a choice needed more than was counted.

        Other schedules of as many stages are taken to need as much more, until one of them was compiled.
        """
        first = {(choice.stages, is_split): room for is_split in (False, True)}
        return Rooms(self.others, {**first, **self.of_stages, _schedule(choice): room})


def _schedule(choice: Choice) -> tuple[int, bool]:
    return choice.stages, choice.form.is_split


@dataclass(frozen=True)
class Picked:
    """Result of the outer search, and the price of the plan that was picked."""

    around: Around
    priced: Priced


def search_to_fit(
    given: Sequence[Choice],
    find: Callable[[Candidate, float], Found | Unfit],
    price: Callable[[Candidate], Priced],
    cluster: Cluster,
    clock: Clock | None = None,
    *,
    within: float = 1.0,
    room: float = 1.0,
    tries: int = TRIES,
    start: Start | None = None,
    begin: Callable[[Candidate, float], Begun] | None = None,
    added: Callable[[Choice], float] | None = None,
    least: Callable[[Candidate], float] | None = None,
    pace: Pace | None = None,
    evicting: Evicting | None = None,
    ahead: Callable[[Sequence[Candidate]], None] | None = None,
) -> Picked:
    """Search for the cheapest plan that fits after it is compiled.

    A search does not count copies that several calls gather. If the compiled plan does not fit, the search is
    repeated with that much less memory for choices like it (:class:`Rooms`), up to ``tries`` times. If
    nothing fits in ``room``, it is repeated with all of the memory. If none fits, the closest one is picked.
    If it takes longer than the search's next result is estimated to take, that one is compiled, too. If a
    pipeline cannot be compiled, as of a model whose samples are not independent, the search goes on without
    stages.

    ``find``: the inner search of a candidate, with the seconds per step that a result must beat. ``within``:
    the part of a device's memory that a plan may need. ``room``: the part that the first search may use.
    ``start``: start of the first search; each later one starts from the result before. ``clock``: time limit
    of all searches together. ``begin``: begins a search that ``find`` would do. ``added``: seconds that a
    choice takes in addition to those of ``find``. ``least``: the part of the memory that ``find`` may use
    which a candidate needs at least. ``pace``: how fast a choice's kernels are. ``evicting``: seconds that
    evictions of activations add. ``ahead``: begins what ``price`` would do, and ends what it began before.
    Raises NoPlanFound, NoPlanYet.
    """
    clock = clock or Clock()
    limit_s = LIMIT_S if clock.limit_s == inf else inf
    tried, needed_part, rooms = list[tuple[Around, Price]](), 0.0, Rooms(room)
    while len(tried) < tries and not (tried and clock.is_over):
        early = None if begin is None else partial(_found, begin, rooms)
        needed = None if least is None else partial(_least, least, rooms)
        asked = partial(_found, find, rooms), limit_s, clock, start, early, added, needed
        around = search_around(given, *asked, pace=pace, evicting=evicting)
        if not around.found and around.is_stopped and not tried:
            raise NoPlanYet(why=around.why)
        if ahead is not None and around.found and around.found[0].choice.stages > 1:
            # One core prices a pipeline.
            soon = [around.found[0].choice, *(choice for choice, _ in _further(around)[:1])]
            ahead([rooms.candidate(choice) for choice in soon])
        try:
            compiled = _compiled(around, rooms, price)
        except PipelineError as error:
            whole = [choice for choice in given if choice.stages == 1]
            if len(whole) in (0, len(given)):
                raise
            PLAN.info("no pipeline: %s", next(iter(str(error).splitlines())))
            given, start = whole, None
            continue
        if compiled is None and rooms.others < within and not clock.is_over and not tried:
            rooms = Rooms(within)  # a plan may leave more memory to the rest than most do
            continue
        if compiled is None:
            needed_part = around.needed_part
            break
        around, best = compiled[0], compiled[1].on(cluster)
        if _fits(best, within):
            of = partial(_priced_on, price, cluster), clock, rooms, within, pace is not None
            tried.append(_fastest(around, best, *of, ahead=ahead))
            break
        tried.append((around, best))
        first, start = around.found[0], around.start
        rooms = rooms.lowered(first.choice, _room(within, first.held_bytes, best))
    if not tried:
        smallest = min(device.memory_bytes for device in cluster.used(cluster.size))
        devices = max((prod(choice.mesh.values()) for choice in given), default=cluster.size)
        text = least_text(needed_part * rooms.others * smallest, smallest)
        raise NoPlanFound(devices=devices, memory=size_text(smallest), least=text)
    around, best = min(tried, key=lambda of: _order(of[1], within))
    if clock.is_over and not _fits(best, within):
        around = replace(around, why=clock.why, is_stopped=True)
    return Picked(around, best.priced)


def _compiled(
    around: Around, rooms: Rooms, price: Callable[[Candidate], Priced]
) -> tuple[Around, Priced] | None:
    """Return the results from the fastest one that compiles on, and its price; None if none compiles.

    If memory is short, the search within a compile may find no plan, since it counts each layer.
    """
    for place, estimate in enumerate(around.found):
        try:
            return replace(around, found=around.found[place:]), price(rooms.candidate(estimate.choice))
        except NoPlanFound:
            continue
    return None


def _fastest(
    around: Around,
    best: Price,
    price: Callable[[Choice, float], Price | None],
    clock: Clock,
    rooms: Rooms,
    within: float,
    is_unequal: bool = False,
    ahead: Callable[[Sequence[Candidate]], None] | None = None,
) -> tuple[Around, Price]:
    """Price further results while their estimates are below the fastest price, and return the fastest one.

    The search's estimate leaves out how evenly stages are cut. A result that would be faster and does not fit
    is searched once more, with less memory. ``is_unequal``: price a choice of each number of stages, with and
    without shares, also if the search left it out.
    """
    found, held = around.found, {estimate.choice: estimate for estimate in around.found}
    further = _of_each_kind(around) if is_unequal else _further(around)
    for place, (choice, seconds) in enumerate(further):
        if clock.is_over or seconds >= best.time.seconds:
            continue
        soon = [later for later, later_s in further[place : place + 2] if later_s < best.time.seconds]
        if ahead is not None and any(later.stages > 1 for later in soon):
            ahead([rooms.candidate(later) for later in soon])
        other = price(choice, rooms.of(choice))
        if other is not None and not _fits(other, within) and other.time.seconds < best.time.seconds:
            most_bytes = rooms.of(choice) * other.searched_bytes
            held_bytes = held[choice].held_bytes if choice in held else most_bytes
            other = price(choice, _room(within, held_bytes, other))
        if other is not None and _fits(other, within) and other.time.seconds < best.time.seconds:
            best = other
            first = held.get(choice, Estimate(choice, seconds, seconds, 0.0))
            found = [first, *(estimate for estimate in found if estimate.choice != choice)]
    return replace(around, found=found), best


def _further(around: Around) -> Sequence[tuple[Choice, float]]:
    """Return the choices to price after the first one, and their estimates.

    What evicts activations of the first one is no faster.
    """
    if not around.found:
        return ()
    first = around.found[0].choice
    slower = replace(first, form=replace(first.form, balances=True))
    others = [(of.choice, of.seconds) for of in around.found[1:] if of.choice != slower]
    return others[:FURTHER]


def _of_each_kind(around: Around) -> Sequence[tuple[Choice, float]]:
    """Return the best choices but the first, one for each number of stages with and without shares, and
    lower bounds on their seconds.

    The order is that of their estimates or, if the search left a choice out, of its bound.
    """
    first, *others = [(of.seconds, of.choice, of.bound_s) for of in around.found]
    found = {_kind(first[1]): first}
    for row in [*others, *((bound_s, choice, bound_s) for choice, bound_s in around.left)]:
        found.setdefault(_kind(row[1]), row)
    near = [row for row in others if _kind(row[1]) == _kind(first[1])][:1]
    rows = sorted([*list(found.values())[1:], *near], key=lambda row: row[0])
    return [(choice, bound_s) for _, choice, bound_s in rows[:OF_EACH_KIND]]


def _kind(choice: Choice) -> tuple[int, bool]:
    return choice.stages, bool(choice.shares)


def _priced_on(
    price: Callable[[Candidate], Priced], cluster: Cluster, choice: Choice, room: float
) -> Price | None:
    """Return the price of a choice in the part ``room`` of memory; None if it cannot be compiled."""
    try:
        return price(_of(choice, room)).on(cluster)
    except (NoPlanFound, PipelineError):
        return None


def room_for(within: float, picked: Picked, compiled: Price) -> float:
    """Return the part of a device's memory to give a search whose plan may need the part ``within``.

    The memory that a search does not count is taken from the plan ``picked``, compiled as ``compiled``.
    """
    return _room(within, picked.around.found[0].held_bytes, compiled)


def _room(within: float, held_bytes: float, compiled: Price) -> float:
    """Return the part of memory for the next search, if the last one counted ``held_bytes``.

    The uncounted rest of the compiled plan's memory is assumed to stay the same.
    """
    lacking = compiled.needed_bytes / compiled.capacity_bytes - within
    return max(_LEAST * within, _SPARE * (held_bytes / compiled.searched_bytes - lacking))


def _fits(price: Price, within: float) -> bool:
    """Return True if a plan needs at most the part ``within`` of memory, which may be more than there is."""
    return (price.fits or within > 1) and price.needed_bytes <= within * price.capacity_bytes


def _order(price: Price, within: float) -> tuple[bool, bool, float]:
    """Return a sort key: plans that fit first, by time, then the others by the memory that they need."""
    is_above = not _fits(price, within)
    return is_above, not price.fits, price.needed_bytes if is_above else price.order[1]


def _found(find: Callable[[Candidate, float], _T], rooms: Rooms, choice: Choice, cutoff_s: float) -> _T:
    return find(rooms.candidate(choice), cutoff_s)


def _least(least: Callable[[Candidate], float], rooms: Rooms, choice: Choice) -> float:
    return least(rooms.candidate(choice))


def _of(choice: Choice, room: float) -> Candidate:
    return replace(choice.candidate, room=room)
