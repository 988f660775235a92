"""Prices of plans, those first that may be the best. Plans that cannot be the best are not compiled."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shardc.diagnostics.base import ShardcError
from shardc.planning.bounds.bound import Bound
from shardc.planning.candidates import Candidate
from shardc.planning.price import Price

NOTHING = Bound(0.0)
"""Bound of a plan of which nothing is known."""


@dataclass
class Prices:
    """Prices of plans.

    ``refused``: plans that cannot be made, and why. ``left_out``: plans without a price, with their bounds.
    ``is_hopeless``: whether no plan's parameters and state fit; then only one has a price. ``is_stopped``:
    whether Ctrl-C ended the work.
    """

    priced: list[Price] = field(default_factory=list)
    refused: list[tuple[Candidate, str]] = field(default_factory=list)
    left_out: list[tuple[Candidate, Bound]] = field(default_factory=list)
    is_hopeless: bool = False
    is_stopped: bool = False


def best_first(
    candidates: Sequence[tuple[Candidate, Bound]],
    capacity_bytes: float,
    price: Callable[[Candidate], Price],
    closer: Callable[[Candidate], Bound | None] = lambda candidate: None,
) -> Prices:
    """Price plans, the ones with the least bound first, until no other can be better.

    A plan that fits is better than one that does not. Of plans that fit the better is faster, of others it
    needs less memory.

    Args:
        candidates: Plans, each with a lower bound of what it needs.
        capacity_bytes: Memory of a device.
        price: Compiles a plan and returns its price. Plans for which it raises ShardcError are refused; if it
            raises for all, the last error is raised.
        closer: Returns a closer lower bound, which takes longer, or None if there is none.
    """
    found = Prices()
    best: tuple[bool, float] | None = None
    queue = [
        (_rank(bound, capacity_bytes), number, False, candidate, bound)
        for number, (candidate, bound) in enumerate(candidates)
    ]
    heapq.heapify(queue)
    least_state_bytes = min((bound.state_bytes for _, bound in candidates), default=0.0)
    found.is_hopeless = len(queue) > 1 and least_state_bytes > capacity_bytes
    while queue:
        rank, number, is_close, candidate, bound = heapq.heappop(queue)
        is_settled = bool(found.priced) and (found.is_hopeless or found.is_stopped)
        if is_settled or (best is not None and rank[:2] > best):
            found.left_out.append((candidate, bound))
            continue
        try:
            closest = None if is_close or found.is_hopeless else closer(candidate)
            if closest is not None:
                both = bound.and_also(closest)
                heapq.heappush(queue, (_rank(both, capacity_bytes), number, True, candidate, both))
                continue
            found.priced.append(price(candidate))
        except KeyboardInterrupt:
            if not found.priced:
                raise
            found.is_stopped = True
            found.left_out.append((candidate, bound))
            continue
        except ShardcError as error:
            found.refused.append((candidate, next(iter(str(error).splitlines()))))
            if len(found.refused) == len(candidates):
                raise
            continue
        last = found.priced[-1]
        best = min(best or (True, float("inf")), _found_rank(last, capacity_bytes))
    return found


def _rank(bound: Bound, capacity_bytes: float) -> tuple[bool, float, float]:
    """Return the sort key of a bound, as that of :func:`_found_rank`: of equal ones, less memory first."""
    is_above = bound.needed_bytes > capacity_bytes
    return is_above, bound.needed_bytes if is_above else bound.seconds, bound.needed_bytes


def _found_rank(price: Price, capacity_bytes: float) -> tuple[bool, float]:
    """Return the sort key of a price; a bound of a better plan has one that is not larger."""
    return not price.fits, price.time.seconds if price.fits else max(price.needed_bytes, capacity_bytes)
