"""Searches until what they found fits: a compiled plan needs more memory than a search counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from shardc.cost.cluster.cluster import Cluster
from shardc.diagnostics.passes.search import NoPlanFound, NoPlanYet
from shardc.diagnostics.text import size_text
from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.clock import Clock
from shardc.planning.auto.choose import LIMIT_S, Around, Start, search_around
from shardc.planning.auto.space import Choice
from shardc.planning.candidates import Candidate
from shardc.planning.price import Price, Priced

TRIES = 3
"""Searches, each with less memory, at most."""
_SPARE = 0.98
"""Of the memory that would have been enough, to be within at the next try."""
_LEAST = 0.1
"""Of a device's memory, what a search may count on at least."""


@dataclass(frozen=True)
class Picked:
    """What was searched, and the price of what was picked."""

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
) -> Picked:
    """The cheapest plan that fits when it is compiled.

    A search does not see temporaries and gathered copies. So it is repeated with less memory by what the
    compiled plan lacked, for ``tries`` searches at most; what is closest to fitting is picked then.
    ``within``: the part of a device's memory that a plan may need. ``room``: what the first search counts on.
    ``start``: where it begins; later ones begin where it ended.
    ``find``: what the search inside of a candidate finds below so many seconds. ``clock``: when all searches
    together end with what they found. Raises NoPlanFound, NoPlanYet.
    """
    clock = clock or Clock()
    limit_s = LIMIT_S if clock.limit_s == inf else inf
    tried = list[tuple[Around, Price]]()
    while len(tried) < tries and not (tried and clock.is_over):
        around = search_around(given, partial(_found, find, room), limit_s, clock, start)
        if not around.found and around.is_stopped and not tried:
            raise NoPlanYet(why=around.why)
        compiled = _compiled(around, room, price)
        if compiled is None:
            break
        around, best = compiled[0], compiled[1].on(cluster)
        tried.append((around, best))
        if _fits(best, within):
            break
        room, start = _room(within, around.found[0].held_bytes, best), around.start
    if not tried:
        smallest = min(device.memory_bytes for device in cluster.used(cluster.size))
        raise NoPlanFound(devices=cluster.size, memory=size_text(smallest))
    around, best = min(tried, key=lambda of: _order(of[1], within))
    if clock.is_over and not _fits(best, within):
        around = replace(around, why=clock.why, is_stopped=True)
    return Picked(around, best.priced)


def _compiled(
    around: Around, room: float, price: Callable[[Candidate], Priced]
) -> tuple[Around, Priced] | None:
    """The fastest of what was found that compiles, at the head of what was found; None if nothing does.

    Where memory is short the search within a compile, which sees each layer, may find no plan.
    """
    for place, estimate in enumerate(around.found):
        try:
            return replace(around, found=around.found[place:]), price(_of(estimate.choice, room))
        except NoPlanFound:
            continue
    return None


def room_for(within: float, picked: Picked, compiled: Price) -> float:
    """The part of a device's memory that a search may count on for a plan that needs the part ``within``, by
    what another plan needs that the search for it did not count.
    """
    return _room(within, picked.around.found[0].held_bytes, compiled)


def _room(within: float, held_bytes: float, compiled: Price) -> float:
    """The part of a device's memory that is left to a search which counted ``held_bytes`` of what a compiled
    plan needs: what it does not count stays.
    """
    capacity_bytes = compiled.capacity_bytes
    lacking = compiled.needed_bytes - within * capacity_bytes
    return max(_LEAST * within, _SPARE * (held_bytes - lacking) / capacity_bytes)


def _fits(price: Price, within: float) -> bool:
    """``within`` above 1: more memory than devices have."""
    return (price.fits or within > 1) and price.needed_bytes <= within * price.capacity_bytes


def _order(price: Price, within: float) -> tuple[bool, bool, float]:
    """What fits comes first, then what exceeds least the part of memory that was asked for."""
    is_above = not _fits(price, within)
    return is_above, not price.fits, price.needed_bytes if is_above else price.order[1]


def _found(
    find: Callable[[Candidate, float], Found | Unfit], room: float, choice: Choice, cutoff_s: float
) -> Found | Unfit:
    return find(_of(choice, room), cutoff_s)


def _of(choice: Choice, room: float) -> Candidate:
    return replace(choice.candidate, room=room)
