"""A pipeline schedule played through: when each action runs, how long ranks wait, how much memory they hold.

Time in seconds, sizes in bytes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from shardc.diagnostics.pipeline import ScheduleStuck
from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.dependence import Dependences
from shardc.dialects.pipe.schedule import Schedule


@dataclass(frozen=True)
class StageCost:
    """What one micro-batch costs in one stage.

    ``transfer_s``: sending its activation to the next stage, or that one's gradient back. ``activation_bytes`` are held
    from forward on; of them ``weight_bytes`` from the input gradient until the weight gradient, and the rest not.
    """

    forward_s: float
    input_gradient_s: float
    weight_gradient_s: float
    transfer_s: float = 0.0
    activation_bytes: float = 1.0
    weight_bytes: float = 0.0

    def seconds(self, kind: str) -> float:
        """Of one action."""
        whole = self.input_gradient_s + self.weight_gradient_s
        return {"F": self.forward_s, "B": whole, "I": self.input_gradient_s, "W": self.weight_gradient_s}[
            kind
        ]

    def held_bytes(self, kind: str) -> tuple[float, float]:
        """What an action adds when it starts, and when it ends."""
        rest = self.weight_bytes - self.activation_bytes
        return {
            "F": (self.activation_bytes, 0.0),
            "B": (0.0, -self.activation_bytes),
            "I": (0.0, rest),
            "W": (0.0, -self.weight_bytes),
        }[kind]


def merge_stages(costs: Sequence[StageCost], stages: int) -> list[StageCost]:
    """Costs of ``stages`` stages, each of as many of those of ``costs``, which ``stages`` must divide."""
    each, rest = divmod(len(costs), stages)
    if rest:
        raise ValueError(f"{len(costs)} stages cannot be merged into {stages}")
    return [_merged(costs[first : first + each]) for first in range(0, len(costs), each)]


def _merged(costs: Sequence[StageCost]) -> StageCost:
    return StageCost(
        forward_s=sum(cost.forward_s for cost in costs),
        input_gradient_s=sum(cost.input_gradient_s for cost in costs),
        weight_gradient_s=sum(cost.weight_gradient_s for cost in costs),
        transfer_s=costs[-1].transfer_s,
        activation_bytes=sum(cost.activation_bytes for cost in costs),
        weight_bytes=sum(cost.weight_bytes for cost in costs),
    )


@dataclass(frozen=True)
class Span:
    """An action on a rank, or (``to`` a rank) the sending of what it made."""

    action: Action
    rank: int
    start_s: float
    end_s: float
    to: int | None = None


@dataclass(frozen=True)
class Timeline:
    """What a simulated or a measured run did when. ``spans`` are in the order in which they began, by rank."""

    spans: tuple[tuple[Span, ...], ...]
    transfers: tuple[Span, ...] = ()

    @cached_property
    def step_s(self) -> float:
        """From the first action's start to the last one's end."""
        ends_s, starts_s = [r[-1].end_s for r in self.spans if r], [r[0].start_s for r in self.spans if r]
        return max(ends_s, default=0.0) - min(starts_s, default=0.0)

    @cached_property
    def longest_span_s(self) -> float:
        """The longest time that a rank takes from its first action's start to its last one's end."""
        return max(rank[-1].end_s - rank[0].start_s for rank in self.spans if rank)

    @cached_property
    def busy_s(self) -> float:
        """The longest time for which a rank computes."""
        return max(sum(s.end_s - s.start_s for s in rank) for rank in self.spans)

    @property
    def bubble_rate(self) -> float:
        """The share of the longest span in which the busiest rank would wait (Qi et al., Zero Bubble, section 5.3)."""
        return 1 - self.busy_s / self.longest_span_s

    @property
    def idle_rates(self) -> list[float]:
        """For each rank, the share of the step in which it does not compute."""
        return [1 - sum(s.end_s - s.start_s for s in rank) / self.step_s for rank in self.spans]

    def memory(self, costs: Sequence[StageCost]) -> list[list[tuple[float, float]]]:
        """For each rank, the bytes of activations that it holds from each moment on at which they change."""
        return [_memory(rank, costs) for rank in self.spans]

    def peak_bytes(self, costs: Sequence[StageCost]) -> list[float]:
        """The most that each rank holds of activations."""
        return [max((held for _, held in curve), default=0.0) for curve in self.memory(costs)]


def timeline_of(records: Iterable[tuple[int, str, float, float]], ranks: int) -> Timeline:
    """A measured run: rank, action (``2F0``), start and end in seconds, in any order. Time begins with the first one.

    Raises BadAction.
    """
    spans = [Span(Action.parse(text), rank, start_s, end_s) for rank, text, start_s, end_s in records]
    first_s = min((span.start_s for span in spans), default=0.0)
    moved = [replace(span, start_s=span.start_s - first_s, end_s=span.end_s - first_s) for span in spans]
    moved.sort(key=lambda span: (span.start_s, span.end_s))
    return Timeline(tuple(tuple(span for span in moved if span.rank == rank) for rank in range(ranks)))


def _memory(spans: Sequence[Span], costs: Sequence[StageCost]) -> list[tuple[float, float]]:
    held, curve = 0.0, []
    for span in spans:  # one after the other, so in the order of time
        adds = costs[span.action.stage].held_bytes(span.action.kind)
        for when, more in zip((span.start_s, span.end_s), adds, strict=True):
            if more:
                held += more
                curve.append((when, held))
    return curve


Link = Callable[[int, int], Hashable]
"""Sending and receiving rank -> the link between them. What goes over one link goes one after the other."""


def link_of_sender(sender: int, receiver: int) -> Hashable:
    """Each rank sends one value at a time."""
    return sender


def links_of_nodes(ranks_per_node: int) -> Link:
    """Ranks of a node each have a link to each other one; all ranks of a node share the one that leaves it."""

    def link(sender: int, receiver: int) -> Hashable:
        node, other = sender // ranks_per_node, receiver // ranks_per_node
        return (sender, receiver) if node == other else f"node {node}"

    return link


def simulate(
    schedule: Schedule, costs: Sequence[StageCost], *, overlap: bool = True, link: Link | None = None
) -> Timeline:
    """Plays ``schedule`` through, with ``costs`` for each stage.

    ``overlap``: a rank goes on while what it made is sent; else it waits. ``link``: which transfers share a link;
    without it each has one to itself. Raises ScheduleStuck where ranks wait for each other for good.
    """
    return _Simulation(schedule, costs, overlap, link).run()


class _Simulation:
    """Events in the order of time: an action ends, or what one made arrives."""

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
        ends, first = [], 0
        for order in schedule.orders:
            first += len(order)
            ends.append(first)
        self._next = [end - len(order) for end, order in zip(ends, schedule.orders, strict=True)]
        self._ends = ends
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
                self._arrived(n, now_s)
            else:
                self._ended(n, now_s)
        stuck = [self._actions[n] for n, end in zip(self._next, self._ends, strict=True) if n < end]
        if stuck:
            raise ScheduleStuck(schedule=self._schedule.name, actions=", ".join(map(str, stuck)))
        return Timeline(tuple(map(tuple, self._spans)), tuple(self._transfers))

    def _start(self, rank: int, now_s: float) -> None:
        """Begins the rank's next action if it has what it needs."""
        n = self._next[rank]
        if self._running[rank] or n == self._ends[rank] or self._waits[n]:
            return
        action = self._actions[n]
        start_s = max(now_s, self._free_s[rank])
        end_s = start_s + self._costs[action.stage].seconds(action.kind)
        self._spans[rank].append(Span(action, rank, start_s, end_s))
        self._running[rank] = True
        self._next[rank] = n + 1
        heapq.heappush(self._events, (end_s, rank, n, False))

    def _ended(self, n: int, now_s: float) -> None:
        rank = self._rank[n]
        self._running[rank] = False
        self._free_s[rank] = now_s
        for reader in self._readers[n]:
            if self._rank[reader] == rank:
                self._waits[reader] -= 1
            else:
                self._send(n, reader, now_s)
        self._start(rank, now_s)

    def _send(self, n: int, reader: int, now_s: float) -> None:
        rank, action = self._rank[n], self._actions[n]
        start_s = now_s
        sender = action.stage if action.kind == "F" else self._actions[reader].stage
        if self._link is not None:
            link = self._link(rank, self._rank[reader])
            start_s = max(now_s, self._link_free_s.get(link, 0.0))
            self._link_free_s[link] = start_s + self._costs[sender].transfer_s
        end_s = start_s + self._costs[sender].transfer_s
        if not self._overlap:
            self._free_s[rank] = max(self._free_s[rank], end_s)
        self._transfers.append(Span(action, rank, start_s, end_s, self._rank[reader]))
        heapq.heappush(self._events, (end_s, self._rank[reader], reader, True))

    def _arrived(self, n: int, now_s: float) -> None:
        self._waits[n] -= 1
        self._start(self._rank[n], now_s)
