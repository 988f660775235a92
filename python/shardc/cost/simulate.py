"""Simulation of a pipeline schedule: when each action runs, and how long ranks wait."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Sequence

from shardc.cost.pipeline import StageCost
from shardc.cost.timeline import Span, Timeline
from shardc.diagnostics.passes.pipeline import ScheduleStuck
from shardc.dialects.pipe.dependence import Dependences
from shardc.dialects.pipe.eviction import Eviction, places
from shardc.dialects.pipe.schedule import Schedule

Link = Callable[[int, int], Hashable]
"""Function from sending and receiving rank to their link. Transfers over one link run in sequence."""


def links_of_nodes(ranks_per_node: int) -> Link:
    """Give each pair of ranks in a node its own link; a node's ranks share the link that leaves it."""

    def link(sender: int, receiver: int) -> Hashable:
        node, other = sender // ranks_per_node, receiver // ranks_per_node
        return (sender, receiver) if node == other else f"node {node}"

    return link


def simulate(
    schedule: Schedule, costs: Sequence[StageCost], *, overlap: bool = True, link: Link | None = None
) -> Timeline:
    """Simulate ``schedule`` with ``costs`` for each stage.

    ``overlap``: whether a rank continues while its result is sent. ``link``: which transfers share a link; by
    default each has its own; evicted activations have links of their own. Raises ScheduleStuck if ranks wait
    for each other forever.
    """
    return _Simulation(schedule, costs, overlap, link).run()


class _Simulation:
    """Event loop in order of time: an action ends, or its result arrives."""

    def __init__(
        self, schedule: Schedule, costs: Sequence[StageCost], overlap: bool, link: Link | None
    ) -> None:
        self._schedule, self._costs, self._overlap, self._link = schedule, costs, overlap, link
        actions = list(schedule.actions())
        number = {action: n for n, action in enumerate(actions)}
        self._actions, self._rank = actions, [r for r, order in enumerate(schedule.orders) for _ in order]
        self._waits = [0] * len(actions)
        self._readers: list[list[int]] = [[] for _ in actions]
        dependences = Dependences(schedule)
        for n, action in enumerate(actions):
            for needed in dependences.needs(action):
                if needed in number:
                    self._readers[number[needed]].append(n)
                    self._waits[n] += 1
        self._ends = list(itertools.accumulate(len(order) for order in schedule.orders))
        self._moves: dict[int, int] = {}
        """Number of a transfer of evicted activations, beyond those of actions -> stage."""
        self._places = places(schedule.orders) if schedule.evictions else {}
        for eviction in schedule.evictions:
            self._add_moves(eviction)
        self._next = [end - len(order) for end, order in zip(self._ends, schedule.orders, strict=True)]
        self._free_s = [0.0] * schedule.ranks
        self._link_free_s: dict[Hashable, float] = {}
        self._running = [False] * schedule.ranks
        self._events: list[tuple[float, int, int, bool]] = []
        self._spans: list[list[Span]] = [[] for _ in schedule.orders]
        self._transfers: list[Span] = []

    def run(self) -> Timeline:
        for rank in range(self._schedule.ranks):
            self._start(rank, 0.0)
        while self._events:
            now_s, _, n, arrives = heapq.heappop(self._events)
            if arrives:
                self._ready(n, now_s)
            else:
                self._ended(n, now_s)
        stuck = [self._actions[n] for n, end in zip(self._next, self._ends, strict=True) if n < end]
        if stuck:
            raise ScheduleStuck(schedule=self._schedule.name, actions=", ".join(map(str, stuck)))
        return Timeline(tuple(map(tuple, self._spans)), tuple(self._transfers))

    def _ready(self, n: int, now_s: float) -> None:
        """Note that one more thing for which an action or a move waits has ended."""
        self._waits[n] -= 1
        if n not in self._moves:
            self._start(self._rank[n], now_s)
        elif not self._waits[n]:
            self._move(n, now_s)

    def _add_moves(self, eviction: Eviction) -> None:
        """Add the sending of evicted activations and the loading, as :class:`Eviction` says.

        Each starts when both ranks have reached its place. The evictor waits for the sending after its next
        action, and for the loading before its backward; the acceptor waits after its next action.
        """
        stage, guest = eviction.stage, eviction.rank
        home = self._schedule.rank_of[stage]
        forward, backward, _ = self._places[stage, eviction.micro_batch]
        out, load = len(self._waits), len(self._waits) + 1
        self._rank += [home, guest]  # which send
        self._waits += [0, 1]
        self._readers += [[load], []]
        self._moves |= {out: stage, load: stage}
        for rank, place, move in (
            (home, forward, out),
            (guest, eviction.accepted - 1, out),
            (guest, eviction.returned - 1, load),
            (home, backward - 2, load),
        ):
            if place >= 0:
                self._readers[self._first(rank) + place].append(move)
                self._waits[move] += 1
        for rank, place, move in (
            (home, forward + 2, out),
            (home, backward, load),
            (guest, eviction.returned + 1, load),
        ):
            if place < len(self._schedule.orders[rank]):
                self._readers[move].append(self._first(rank) + place)
                self._waits[self._first(rank) + place] += 1

    def _first(self, rank: int) -> int:
        """Return the number of a rank's first action."""
        return self._ends[rank] - len(self._schedule.orders[rank])

    def _move(self, n: int, now_s: float) -> None:
        """Send evicted activations."""
        end_s = now_s + self._costs[self._moves[n]].eviction_s
        if not self._overlap:
            self._free_s[self._rank[n]] = max(self._free_s[self._rank[n]], end_s)
        for reader in self._readers[n]:
            heapq.heappush(self._events, (end_s, self._rank[reader], reader, True))

    def _start(self, rank: int, now_s: float) -> None:
        """Start the rank's next action if its inputs are available."""
        n = self._next[rank]
        if self._running[rank] or n == self._ends[rank] or self._waits[n]:
            return
        action = self._actions[n]
        start_s = max(now_s, self._free_s[rank])
        end_s = start_s + self._costs[action.stage].of(action.micro_batch).seconds(action.kind)
        self._spans[rank].append(Span(action, rank, start_s, end_s))
        self._running[rank] = True
        self._next[rank] = n + 1
        heapq.heappush(self._events, (end_s, rank, n, False))

    def _ended(self, n: int, now_s: float) -> None:
        rank = self._rank[n]
        self._running[rank] = False
        self._free_s[rank] = now_s
        for reader in self._readers[n]:
            if reader in self._moves:
                self._ready(reader, now_s)
            elif self._rank[reader] == rank:
                self._waits[reader] -= 1
            else:
                self._send(n, reader, now_s)
        self._start(rank, now_s)

    def _send(self, n: int, reader: int, now_s: float) -> None:
        rank, action = self._rank[n], self._actions[n]
        start_s = now_s
        sender = action.stage if action.kind == "F" else self._actions[reader].stage
        transfer_s = self._costs[sender].of(action.micro_batch).transfer_s
        if self._link is not None:
            link = self._link(rank, self._rank[reader])
            start_s = max(now_s, self._link_free_s.get(link, 0.0))
            self._link_free_s[link] = start_s + transfer_s
        end_s = start_s + transfer_s
        if not self._overlap:
            self._free_s[rank] = max(self._free_s[rank], end_s)
        to = self._rank[reader]
        self._transfers.append(Span(action, rank, start_s, end_s, to, self._actions[reader]))
        heapq.heappush(self._events, (end_s, to, reader, True))
