"""Reductions of a graph of choices that keep an optimum.

A state is removed if another state is never worse, whatever the neighbours' states are. A node with at most
two neighbours is eliminated: its least cost is added to theirs. Both are exact (Pearl 1988; Scholz and
Eckstein 2002, for register allocation). So the search needs no list of calls that have to be split alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shardc.passes.search.distances import Matrix
from shardc.passes.search.graph import Graph

_TIE = 1e-15
"""Difference in seconds below which costs count as equal."""
_AT_ONCE = 1 << 19
"""Limit of the size of arrays that compare all pairs of a node's states at once."""
_FEW = 4
"""Number of a neighbour's states that the first, coarse comparison of states uses."""


def _gaps(costs: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return ``costs - others``; minus infinity, which decides nothing, where both are infinite."""
    with np.errstate(invalid="ignore"):
        found = costs - others
    return np.where(np.isnan(found), -np.inf, found)


def _plus(gaps: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Return the sum. It is NaN, which compares as False, for plus infinity and minus infinity."""
    with np.errstate(invalid="ignore"):
        return gaps + more


@dataclass(frozen=True)
class _Settled:
    """Eliminated node, and its best state for each choice of its neighbours' states."""

    node: int
    neighbours: tuple[int, ...]
    states: tuple[np.ndarray, ...]
    """For each neighbour, the states to which the table's dim refers."""
    table: np.ndarray


@dataclass
class Reduced:
    """Graph after reductions.

    Args:
        costs: Seconds of each node's remaining states.
        near: For each node, its neighbours and the seconds of pairs of states.
        kept: For each node, the original numbers of its remaining states.
        alive: Nodes that are not eliminated.
        memory: Bytes of each node's remaining states, [point, state], if memory is bounded.
        held: Bytes, at each point, of eliminated nodes.
        base: Seconds of eliminated nodes.
        undecided: Nodes that keep all states.
    """

    costs: list[np.ndarray]
    near: list[dict[int, Matrix]]
    kept: list[np.ndarray]
    alive: set[int]
    memory: list[np.ndarray]
    held: np.ndarray
    base: float = 0.0
    undecided: set[int] = field(default_factory=set)
    _settled: list[_Settled] = field(default_factory=list)

    @staticmethod
    def of(graph: Graph, bounded: bool = False) -> Reduced:
        """Return the reduced graph. ``bounded``: True if memory is limited."""
        near: list[dict[int, Matrix]] = [{} for _ in graph.costs]
        for (first, second), seconds in graph.edges.items():
            near[first][second], near[second][first] = seconds, seconds.T
        kept = [np.arange(len(costs)) for costs in graph.costs]
        points = graph.points if bounded else 0
        memory = [held[:points] for held in graph.memory]
        costs = [c.copy() for c in graph.costs]
        alive, held = set(range(len(kept))), np.zeros(points)
        found = Reduced(costs, near, kept, alive, memory, held, undecided=graph.undecided)
        found._run()
        return found

    def complete(self, chosen: dict[int, int]) -> list[int]:
        """Return the states of all nodes, given those of the nodes that are alive."""
        found = dict(chosen)
        for settled in reversed(self._settled):
            at = tuple(
                int(np.flatnonzero(states == found[node])[0])
                for node, states in zip(settled.neighbours, settled.states, strict=True)
            )
            found[settled.node] = int(settled.table[at])
        return [found[node] for node in range(len(self.costs))]

    def _run(self) -> None:
        waiting = self.alive - self.undecided
        while waiting:
            node = min(waiting, key=lambda n: (len(self.near[n]), n))
            waiting.discard(node)
            near = set(self.near[node])
            changed = self._leave_out_states(node)
            changed |= self._settle(node)
            if changed:
                waiting |= near - self.undecided

    def _leave_out_states(self, node: int) -> bool:
        """Remove impossible states, and states that another one always equals or beats."""
        costs = self.costs[node]
        if len(costs) == 1:
            return False
        possible = np.isfinite(costs)
        for seconds in self.near[node].values():
            possible &= np.isfinite(seconds).any(axis=1)
        if not possible.any():
            return False
        if not possible.all():
            self._keep(node, possible)
            self._leave_out_states(node)
            return True
        beats = self._beats(node)
        keep = np.ones(len(costs), bool)
        for state in range(len(costs)):
            keep[state] = not (beats[:, state] & keep).any()
        if keep.all():
            return False
        self._keep(node, keep)
        return True

    def _beats(self, node: int) -> np.ndarray:
        """Return [s, t]: True if state ``s`` never costs more than ``t``, for any states of neighbours."""
        costs, edges = self.costs[node], self.near[node].values()
        are_few = sum(seconds.size for seconds in edges) * len(costs) <= _AT_ONCE
        gaps = self._gaps(node) if are_few else self._few_gaps(node)
        beats = costs[:, None] - costs[None, :] + gaps <= _TIE
        for held in self.memory[node]:
            beats &= held[:, None] <= held[None, :] * (1 + 1e-12)
        np.fill_diagonal(beats, False)
        if are_few:
            return beats
        for state in np.flatnonzero(beats.any(axis=1)):
            others = np.flatnonzero(beats[state])
            more = costs[state] - costs[others]
            for seconds in edges:
                more = _plus(more, _gaps(seconds[state], seconds[others]).max(axis=1))
            beats[state, others] = more <= _TIE
        return beats

    def _gaps(self, node: int) -> Matrix:
        """Return [s, t]: upper bound of the cost of ``s`` minus that of ``t`` on edges."""
        found = np.zeros((len(self.costs[node]),) * 2)
        for seconds in self.near[node].values():
            found = _plus(found, _gaps(seconds[:, None, :], seconds[None, :, :]).max(axis=2))
        return found

    def _few_gaps(self, node: int) -> Matrix:
        """Return a lower bound of :meth:`_gaps` from a few of the neighbours' states."""
        found = np.zeros((len(self.costs[node]),) * 2)
        for seconds in self.near[node].values():
            few = seconds[:, :: max(1, seconds.shape[1] // _FEW)]
            gaps = [_gaps(column[:, None], column[None, :]) for column in few.T]
            found = _plus(found, np.max(gaps, axis=0))
        return found

    def _keep(self, node: int, keep: np.ndarray) -> None:
        self.costs[node], self.kept[node] = self.costs[node][keep], self.kept[node][keep]
        self.memory[node] = self.memory[node][:, keep]
        for other, seconds in self.near[node].items():
            self.near[node][other] = seconds[keep]
            self.near[other][node] = self.near[node][other].T

    def _settle(self, node: int) -> bool:
        """Eliminate a node with one state or at most two neighbours; return whether it was eliminated."""
        others = tuple(self.near[node])
        is_fixed = len(self.costs[node]) == 1
        if not is_fixed and (len(others) > 2 or self.memory[node].any()):
            return False
        if is_fixed:
            self._pay(node)
            others = ()
        elif len(others) == 2:
            first, second = others
            table = self.near[first][node][:, None, :] + (self.costs[node] + self.near[second][node])[None]
            self._note(node, others, table.argmin(axis=2))
            self._detach(node)
            self._join(first, second, table.min(axis=2))
        elif len(others) == 1:
            table = self.costs[node] + self.near[others[0]][node]
            self._note(node, others, table.argmin(axis=1))
            self._detach(node)
            self.costs[others[0]] = self.costs[others[0]] + table.min(axis=1)
        else:
            self.base += float(self.costs[node].min())
            self._note(node, (), np.array(self.costs[node].argmin()))
        self.alive.discard(node)
        return True

    def _pay(self, node: int) -> None:
        """Eliminate a node with one state. Its edges become costs of its neighbours.

        Its cost becomes part of ``base``, and its memory part of ``held``.
        """
        for other, seconds in self.near[node].items():
            self.costs[other] = self.costs[other] + seconds[0]
        self.base += float(self.costs[node][0])
        self.held = self.held + self.memory[node][:, 0]
        self._note(node, (), np.array(0))
        self._detach(node)

    def _note(self, node: int, others: tuple[int, ...], places: np.ndarray) -> None:
        states = tuple(self.kept[other].copy() for other in others)
        self._settled.append(_Settled(node, others, states, self.kept[node][places]))

    def _detach(self, node: int) -> None:
        for other in self.near[node]:
            del self.near[other][node]
        self.near[node] = {}

    def _join(self, first: int, second: int, seconds: Matrix) -> None:
        if second in self.near[first]:
            seconds = seconds + self.near[first][second]
        self.near[first][second], self.near[second][first] = seconds, seconds.T
