"""Best-first search (A*) for the cheapest chain of reshard steps."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from math import prod

from shardc.cost.collective import KINDS, sent_bytes
from shardc.cost.links import LinkModel
from shardc.dialects.dist.reshard_steps import Step
from shardc.dialects.dist.sharding import Sharding
from shardc.passes.partition.reshard_moves import Dims, Move, Moves, Numbers, State, common

MAX_TRIED = 2000
"""Moves to try before the best chain found so far is taken: some 10 ms. Layouts of two axes need a tenth of
it.
"""


class ReshardSearch:
    """One search, from ``source`` to ``target`` (both normal) of a tensor whose global ``shape`` both divide.

    ``element_bytes`` counts only where ``links`` have latencies.
    """

    def __init__(
        self, source: Sharding, target: Sharding, shape: tuple[int, ...], element_bytes: int, links: LinkModel
    ) -> None:
        self._moves = Moves(source, target, shape, scatter_anywhere=not links.is_uniform)
        self._links = links
        self._link: dict[Numbers, tuple[float, float]] = {}
        self._bytes = prod(shape) * element_bytes
        self._fastest = links.fastest(self._moves.axes)
        self._target_bytes = self._local_bytes(self._moves.target.dims)
        # Ties go to the shorter chain: a step counts as a billionth of moving the whole tensor.
        self._step_cost = max(1e-9 * links.seconds(self._moves.axes, self._bytes), 1e-15)

    def run(self) -> tuple[Step, ...]:
        """The steps of the cheapest chain found; at worst the direct one."""
        source, target = self._moves.source, self._moves.target
        best = list(self._moves.direct())
        bound = self._cost(best)
        reached: dict[State, tuple[float, State | None, Move | None]] = {source: (0.0, None, None)}
        order = count()
        queue = [(0.0, next(order), source)]
        done: set[State] = set()
        tried = 0
        while queue and tried < MAX_TRIED:
            _, _, state = heappop(queue)
            if state == target:
                break
            if state in done:
                continue
            done.add(state)
            cost, local = reached[state][0], self._local_bytes(state.dims)
            for move in self._moves.from_state(state):
                tried += 1
                total = cost + self._seconds(move, local)
                if total > bound or (move.to in reached and reached[move.to][0] <= total):
                    continue
                estimate = total + self._remaining(move.to.dims)
                if estimate > bound:
                    continue
                reached[move.to] = (total, state, move)
                heappush(queue, (estimate, next(order), move.to))
                if move.to == target:
                    bound = total
        return self._steps(self._path(reached) if target in reached else best)

    def _seconds(self, move: Move, local_bytes: float) -> float:
        kind = KINDS.get(move.kind)
        if kind is None:
            return self._step_cost
        link = self._link.get(move.axes)
        if link is None:
            link = self._link[move.axes] = self._links.link(self._moves.axes[x] for x in move.axes)
        latency_s, bandwidth = link
        sent = sent_bytes(kind, self._moves.ways(move.axes), local_bytes)
        return latency_s + sent / bandwidth + self._step_cost

    def _remaining(self, dims: Dims) -> float:
        """At least what is still to pay: the device whose block overlaps its target least must receive the
        rest.
        """
        own = 1
        for axes, wanted in zip(dims, self._moves.target.dims, strict=True):
            same = common(axes, wanted)
            if same == len(axes):
                continue
            if same < len(wanted):
                # Unless parts of one axis hang together, some device has nothing of what it needs.
                clash = any(x in self._moves.clash[y] for x in axes[same:] for y in wanted[same:])
                own = 0 if not clash else own
                continue
            own *= self._moves.ways(axes[same:])
        missing = self._target_bytes * (1 - 1 / own if own else 1)
        return missing / self._fastest

    def _local_bytes(self, dims: Dims) -> float:
        return self._bytes / prod(self._moves.ways(axes) for axes in dims)

    def _cost(self, moves: list[Move]) -> float:
        cost, state = 0.0, self._moves.source
        for move in moves:
            cost += self._seconds(move, self._local_bytes(state.dims))
            state = move.to
        return cost

    def _path(self, reached: dict[State, tuple[float, State | None, Move | None]]) -> list[Move]:
        moves: list[Move] = []
        state: State | None = self._moves.target
        while state is not None:
            _, state, move = reached[state]
            if move is not None:
                moves.append(move)
        return moves[::-1]

    def _steps(self, moves: list[Move]) -> tuple[Step, ...]:
        steps, state = [], self._moves.source
        for move in moves:
            steps.append(self._moves.step(move, state))
            state = move.to
        return tuple(steps)
