"""Memory of devices: parameters, gradients, optimizer state, activations, and early gathered tensors."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from shardc.cost.origin import Assumed
from shardc.dialects.pipe.schedule import Schedule

PREFETCH_BYTES: Annotated[int, Assumed("two weights of an 8B model in bf16")] = 256 << 20
"""Maximum size of tensors that are gathered, or being gathered, before they are needed."""
IN_FLIGHT_BYTES: Annotated[int, Assumed("several buckets, well below a device's memory")] = 1 << 30
"""Maximum size of operands of collectives in flight, except the last one's; they live until the wait."""

CHANGE = {"F": 1, "B": -1, "I": 0, "W": -1}
"""Change of the number of micro-batches that a stage holds, by kind of action."""
Matrix = list[list[float]]
"""``m[i][j]``: bytes of the ops from ``ends[i]`` to ``ends[j]``."""


@dataclass(frozen=True)
class RankMemory:
    """Peak memory of a device of one rank. ``state_bytes``: parameters, gradients and optimizer state."""

    rank: int
    state_bytes: float
    activation_bytes: float

    @property
    def total_bytes(self) -> float:
        return self.state_bytes + self.activation_bytes


def in_flight(schedule: Schedule) -> list[int]:
    """Return the most micro-batches in flight in each stage, by its place in its route."""
    most = [0] * len(schedule.routes[0])
    for order in schedule.orders:
        now: dict[int, int] = {}
        for action in order:
            now[action.stage] = now.get(action.stage, 0) + CHANGE[action.kind]
            place = schedule.route(action.micro_batch).index(action.stage)
            most[place] = max(most[place], now[action.stage])
    return most


def peak_activations(schedule: Schedule, kept: Sequence[float]) -> list[float]:
    """Return each rank's peak of activations; ``kept``: bytes per micro-batch for each place in a route.

    Evicted activations count on both ranks while they are sent.
    """
    if schedule.evictions:
        return _peaks_of_holds(schedule, kept)
    peaks = []
    for order in schedule.orders:
        now = peak = 0.0
        for action in order:
            now += CHANGE[action.kind] * kept[schedule.route(action.micro_batch).index(action.stage)]
            peak = max(peak, now)
        peaks.append(peak)
    return peaks


def _peaks_of_holds(schedule: Schedule, kept: Sequence[float]) -> list[float]:
    changes = [[0.0] * (len(order) + 2) for order in schedule.orders]
    for hold in schedule.holds():
        size_bytes = kept[schedule.route(hold.micro_batch).index(hold.stage)]
        changes[hold.rank][hold.first] += size_bytes
        changes[hold.rank][min(hold.last + 1, len(changes[hold.rank]) - 1)] -= size_bytes
    return [max(itertools.accumulate(row), default=0.0) for row in changes]


@dataclass(frozen=True)
class HeldItem:
    """``size_bytes`` held by the stage that has one of the ops in ``touched``.

    If ``made`` is given, only stages that start after that op hold it.
    """

    size_bytes: int
    touched: list[int]
    made: int | None = None


def held_between(items: Iterable[HeldItem], ends: Sequence[int]) -> Matrix:
    """Return the bytes of the items for each possible stage."""
    found = [[0.0] * len(ends) for _ in ends]
    for item in items:
        for i, start in enumerate(ends):
            if item.made is not None and item.made >= start:
                continue
            first = next((op for op in item.touched if op >= start), None)
            if first is not None:
                found[i][next(j for j, end in enumerate(ends) if end > first)] += item.size_bytes
    return [list(itertools.accumulate(row)) for row in found]


class StageMemory:
    """Memory of every possible stage: its ``state``, and ``kept`` for each micro-batch in flight there."""

    def __init__(self, state: Matrix, kept: Sequence[Matrix], schedule: Schedule) -> None:
        self._flying, self._state, self._kept = in_flight(schedule), state, kept
        self._share = self._shares(schedule)

    def fraction(self, place: int, i: int, j: int) -> float:
        """Return the bytes of a stage from ``ends[i]`` to ``ends[j]`` over its share of a device's memory."""
        return self._bytes(place, i, j) / self._share[place]

    def _bytes(self, place: int, i: int, j: int) -> float:
        return self._state[i][j] + self._flying[place] * self._kept[place][i][j]

    def _shares(self, schedule: Schedule) -> list[float]:
        """Return each stage's share of its rank's memory, assuming equal cuts."""
        stages, last = len(self._flying), len(self._state) - 1
        wanted = [max(self._bytes(place, 0, last), 1.0) / stages for place in range(stages)]
        shares = [1.0] * stages
        for order in schedule.orders:
            places = {schedule.route(a.micro_batch).index(a.stage) for a in order}
            for place in places:
                shares[place] = min(shares[place], wanted[place] / sum(wanted[p] for p in sorted(places)))
        return shares
