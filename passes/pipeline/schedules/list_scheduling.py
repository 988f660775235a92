"""List scheduling by simulation: a free rank takes the first action that can run.

Weight gradients run where a rank would wait, as in zero-bubble schedules (Qi et al. 2024).
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from shardc.cost.pipeline import StageCost
from shardc.diagnostics.passes.pipeline import ScheduleStuck
from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.dependence import Dependences
from shardc.dialects.pipe.schedule import Orders, Schedule, one_route, orders
from shardc.dialects.pipe.stage_graph import Reads

Queues = Sequence[Sequence[Iterable[Action]]]
"""For each rank, lists of its F, B and I. A list keeps its order, and earlier lists have priority."""


EQUAL = StageCost(1.0, 1.0, 1.0, activation_bytes=1.0, weight_bytes=1.0)
"""Usual costs of drawings: forward, input gradient and weight gradient take equal time."""


def fill_holes(
    name: str,
    queues: Queues,
    stages: int,
    costs: Sequence[StageCost] | None,
    held: float,
    reads: Reads = (),
) -> Schedule:
    """Return :func:`list_schedule` for one route. ``held`` limits the stages' activations that a rank
    holds.
    """
    costs = costs or [EQUAL] * stages
    memory_limit_bytes = held * max(cost.activation_bytes for cost in costs)
    return list_schedule(name, queues, one_route(stages), costs, memory_limit_bytes, reads=reads)


def list_schedule(
    name: str,
    queues: Queues,
    routes: tuple[tuple[int, ...], ...],
    costs: Sequence[StageCost],
    memory_limit_bytes: float = inf,
    patience: float = 1.0,
    slices: int = 1,
    reads: Reads = (),
) -> Schedule:
    """Return a schedule of all actions of ``queues``, with a W for each I.

    A forward does not start if the rank would then hold more than ``memory_limit_bytes``, including state, or
    have no room for a micro-batch in its later stages; W's run first to free memory. A W runs where a rank
    would wait for at least ``patience`` times its duration. ``costs`` has an entry for each stage. ``reads``:
    what each stage reads, if stages are no chain. Raises ScheduleStuck if no order of ``queues`` fits into
    ``memory_limit_bytes``.
    """
    given = [[deque(queue) for queue in queues_of_rank] for queues_of_rank in queues]
    listed = orders([a for q in of_rank for a in q] for of_rank in given)
    whole = Schedule(name, listed, routes, slices, reads=reads)
    return replace(whole, orders=_Player(whole, given, costs, memory_limit_bytes, patience).run())


def state_of_ranks(schedule: Schedule, costs: Sequence[StageCost]) -> list[float]:
    """Return the bytes of state that each rank holds."""
    found = [0.0] * schedule.ranks
    for stage, rank in schedule.rank_of.items():
        found[rank] += costs[stage].state_bytes
    return found


class _Player:
    """Event simulation: an event is a rank that becomes free, or a result that it may wait for."""

    def __init__(
        self,
        schedule: Schedule,
        given: list[list[deque[Action]]],
        costs: Sequence[StageCost],
        memory_limit_bytes: float,
        patience: float,
    ) -> None:
        self._given, self._costs, self._patience = given, costs, patience
        self._name, self._rank_of = schedule.name, schedule.rank_of
        self._needs = Dependences(schedule).needs
        self._neighbours = {stage: set[int]() for stage in self._rank_of}
        for route in schedule.routes:
            for reader, reads in zip(route, schedule.graph.reads, strict=True):
                for source in (route[place] for place in reads):
                    self._neighbours[source].add(reader)
                    self._neighbours[reader].add(source)
        state = state_of_ranks(schedule, costs)
        self._room = {stage: memory_limit_bytes - state[rank] for stage, rank in self._rank_of.items()}
        for route in schedule.routes:
            for earlier, later in itertools.combinations(route, 2):
                rank = self._rank_of[earlier]
                if rank == self._rank_of[later] and len(given[rank]) > 1:
                    self._room[earlier] -= costs[later].activation_bytes
        self._ended_s: dict[Action, float] = {}
        self._owed: list[deque[Action]] = [deque() for _ in given]
        self._held = [0.0] * len(given)
        self._free_s = [0.0] * len(given)
        self._made: list[list[Action]] = [[] for _ in given]
        self._events = [(0.0, rank) for rank in range(len(given))]

    def run(self) -> Orders:
        while self._events:
            now_s, rank = heapq.heappop(self._events)
            if self._free_s[rank] <= now_s:
                self._choose(rank, now_s)
        stuck = [queue[0] for queues in self._given for queue in queues if queue]
        if stuck:
            raise ScheduleStuck(schedule=self._name, actions=", ".join(map(str, stuck)))
        return orders(self._made)

    def _choose(self, rank: int, now_s: float) -> None:
        soonest_s = inf
        for queue in self._given[rank]:
            if queue and self._fits(rank, queue[0]):
                ready_s = self._ready_s(rank, queue[0])
                if ready_s <= now_s:
                    return self._do(rank, queue.popleft(), now_s)
                soonest_s = min(soonest_s, ready_s)
        owed = self._owed[rank]
        if owed and soonest_s >= now_s + self._patience * self._costs[owed[0].stage].weight_gradient_s:
            return self._do(rank, owed.popleft(), now_s)
        return None

    def _fits(self, rank: int, action: Action) -> bool:
        if action.kind != "F":
            return True
        return self._held[rank] + self._costs[action.stage].activation_bytes <= self._room[action.stage]

    def _ready_s(self, rank: int, action: Action) -> float:
        """Return when ``action`` can start; infinity if a dependence has not started yet."""
        ready_s = 0.0
        for needed in self._needs(action):
            if needed not in self._ended_s:
                return inf
            away = self._rank_of[needed.stage] != rank
            transfer_s = self._transfer_s(needed.stage, action.stage) if away else 0.0
            ready_s = max(ready_s, self._ended_s[needed] + transfer_s)
        return ready_s

    def _transfer_s(self, one: int, other: int) -> float:
        return self._costs[min(one, other)].transfer_s

    def _do(self, rank: int, action: Action, now_s: float) -> None:
        cost = self._costs[action.stage]
        self._ended_s[action] = self._free_s[rank] = end_s = now_s + cost.seconds(action.kind)
        self._made[rank].append(action)
        self._held[rank] += sum(cost.held_bytes(action.kind))
        if action.kind == "I":
            self._owed[rank].append(action._replace(kind="W"))
        heapq.heappush(self._events, (end_s, rank))
        if action.kind != "W":
            for stage in self._neighbours[action.stage]:
                arrives_s = end_s + self._transfer_s(action.stage, stage)
                heapq.heappush(
                    self._events, (now_s, self._rank_of[stage])
                )  # that rank may wait for this action
                heapq.heappush(self._events, (arrives_s, self._rank_of[stage]))
