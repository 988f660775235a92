"""Evictions of activations from ranks that hold many to ranks that hold few (BPipe; Kim et al., 2023)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardc.cost.simulate import simulate
from shardc.dialects.pipe.eviction import Eviction, Hold, evicted_holds, places
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.schedules.list_scheduling import EQUAL

_Key = tuple[int, int]
"""Stage and micro-batch."""
CLOSE = 0.01
"""Part of the largest activations to which the lowest peak is determined."""


def partner(rank: int, ranks: int) -> int:
    """Return the rank that keeps activations for ``rank``: the one as far from the other end."""
    return ranks - 1 - rank


def balance_activations(schedule: Schedule) -> Schedule:
    """Return ``schedule`` with evictions that lower the most micro-batches that a rank holds of its stages.

    Micro-batches of all stages count alike. Under 1F1B, p ranks then hold at most (p + 2) / 2 micro-batches,
    rounded up (Kim et al.), or in long steps of even p one more.

    Args:
        schedule: A schedule of one route, on whole sequences, with one update a step.
    """
    return _Balance(schedule, [1.0] * len(schedule.routes[0]), [0.0] * schedule.ranks).lowest()


def evict_within(
    schedule: Schedule, kept: Sequence[float], state: Sequence[float], memory_limit_bytes: float
) -> Schedule:
    """Return ``schedule`` with as few evictions as keep each rank within a limit.

    If none are enough, the result has the lowest peak that is found.

    Args:
        schedule: As in :func:`balance_activations`.
        kept: Bytes that each stage keeps for a micro-batch, by its place in the route.
        state: Bytes that each rank holds all the time.
        memory_limit_bytes: Limit of a rank's memory.
    """
    balance = _Balance(schedule, kept, state)
    return balance.within(memory_limit_bytes) or balance.lowest()


class _Balance:
    """Search of evictions under a limit.

    Rank r of p evicts to rank p - 1 - r: where it would exceed the limit, a micro-batch that is not next to
    an evicted one and whose backward is furthest away. When the partner receives and returns follows from a
    play with equal stages.
    """

    def __init__(self, schedule: Schedule, kept: Sequence[float], state: Sequence[float]) -> None:
        self._schedule, self._state = schedule, state
        self._bytes = {stage: kept[place] for place, stage in enumerate(schedule.routes[0])}
        self._places = places(schedule.orders)
        played = simulate(schedule, [EQUAL] * schedule.stages).spans
        self._spans = {span.action: span for spans in played for span in spans}
        self._ends = [[span.end_s for span in spans] for spans in played]
        self._clear()

    def _clear(self) -> None:
        pairs = zip(self._state, self._schedule.orders, strict=True)
        self._held = [[size_bytes] * (len(order) + 1) for size_bytes, order in pairs]
        """For each rank, its bytes during each of its actions, and after the last."""
        for hold in self._schedule.holds():
            self._add(hold, 1)
        self._evicted: dict[tuple[int, int], Eviction] = {}

    def lowest(self) -> Schedule:
        """Return the evictions of the lowest limit that bisection finds, to :data:`CLOSE`."""
        self._clear()
        best, least, highest = self._schedule, 0.0, max(map(max, self._held))
        while highest - least > CLOSE * max(self._bytes.values()):
            middle = (highest + least) / 2
            found = self.within(middle)
            if found is None:
                least = middle
            else:
                best, highest = found, middle
        return best

    def within(self, limit: float) -> Schedule | None:
        """Return the schedule with evictions that keep all ranks within ``limit``; None if none are found."""
        self._clear()
        for rank, held in enumerate(self._held):
            order, present = self._schedule.orders[rank], list[_Key]()
            for at in range(len(held)):
                if at > 1 and order[at - 2].kind == "F":
                    present.append((order[at - 2].stage, order[at - 2].micro_batch))
                present = [key for key in present if at < self._places[key][1] - 1]
                while held[at] > limit:
                    chosen = next(self._choices(rank, present, limit), None)
                    if chosen is None:
                        return None
                    self._evict(chosen)
        return replace(self._schedule, evictions=tuple(sorted(self._evicted.values())))

    def _choices(self, rank: int, present: Sequence[_Key], limit: float) -> Iterator[Eviction]:
        """Yield evictions of activations that are ``present`` on a rank, the best first.

        The partner must stay within ``limit``.
        """
        other, order = partner(rank, self._schedule.ranks), self._schedule.orders[rank]
        left = [key for key in present if key not in self._evicted] if other != rank else []
        for key in sorted(left, key=lambda key: (self._is_apart(*key), self._places[key][1]), reverse=True):
            forward, backward, _ = self._places[key]
            accepted = self._run_at(other, self._spans[order[forward]].end_s)
            returned = self._run_at(other, self._spans[order[backward - 1]].start_s)
            if max(self._held[other][accepted : returned + 1]) + self._bytes[key[0]] <= limit:
                yield Eviction(*key, other, accepted, returned)

    def _is_apart(self, stage: int, micro_batch: int) -> bool:
        """Return whether no neighbour of a micro-batch is evicted."""
        return not any((stage, micro_batch + step) in self._evicted for step in (-1, 1))

    def _run_at(self, rank: int, now_s: float) -> int:
        """Return how many actions ``rank`` has run at a time. It transfers before the one that it then runs,
        so that nobody waits for that one.
        """
        return bisect_right(self._ends[rank], now_s)

    def _evict(self, eviction: Eviction) -> None:
        key = eviction.stage, eviction.micro_batch
        rank, place = self._schedule.rank_of[eviction.stage], self._places[key]
        self._add(Hold(rank, *key, place[0], place[2]), -1)
        for hold in evicted_holds(eviction, rank, place):
            self._add(hold, 1)
        self._evicted[key] = eviction

    def _add(self, hold: Hold, sign: int) -> None:
        held, more = self._held[hold.rank], sign * self._bytes[hold.stage]
        for at in range(hold.first, min(hold.last + 1, len(held))):
            held[at] += more
