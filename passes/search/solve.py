"""The cheapest choice of states of a graph, with a proof of how far from it a cheaper one can be.

An integer program: a variable for each state of a node, and one for each pair of states of an edge, of which
the sums over either side are the states' own. HiGHS solves it (Huangfu and Hall 2018).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import highspy
import numpy as np

from shardc.passes.search.distances import Matrix
from shardc.passes.search.graph import Graph
from shardc.passes.search.reduce import Reduced

GAP = 1e-3
"""By how much of itself a plan may cost more than the bound on all."""
LIMIT_S = 30.0
_MS = 1e3
"""Costs are given in milliseconds: HiGHS's tolerances are absolute."""


@dataclass(frozen=True)
class Solution:
    """A state for each node of a graph, what they cost and the least that any choice can, in seconds.

    ``why``: why the search stopped, in HiGHS's words. ``left``: nodes that it had to decide.
    """

    chosen: list[int]
    seconds: float
    bound_s: float
    why: str
    left: int

    @property
    def gap(self) -> float:
        """How much cheaper, of its own cost, another choice could be at most."""
        return max(0.0, 1 - self.bound_s / self.seconds) if self.seconds else 0.0


def solve(graph: Graph, limit_s: float = LIMIT_S) -> Solution | None:
    """The cheapest states; None where there are none. ``limit_s``: seconds of HiGHS at most."""
    reduced = Reduced.of(graph)
    if not reduced.alive:
        chosen = reduced.complete({})
        seconds = graph.seconds(chosen)
        return Solution(chosen, seconds, seconds, "Optimal", 0) if np.isfinite(seconds) else None
    columns = _Columns(reduced)
    return columns.solution(graph, reduced, limit_s)


@dataclass
class _Rows:
    """Sums of variables that are to be a number, each a row of the program."""

    variables: list[int] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    totals: list[float] = field(default_factory=list)

    def add(self, plus: Sequence[int], minus: Sequence[int], total: float) -> None:
        self.variables += [*plus, *minus]
        self.factors += [1.0] * len(plus) + [-1.0] * len(minus)
        self.starts.append(len(self.variables))
        self.totals.append(total)


class _Columns:
    """The integer program of what is left of a graph."""

    def __init__(self, reduced: Reduced) -> None:
        self._nodes = sorted(reduced.alive)
        sizes = [len(reduced.costs[node]) for node in self._nodes]
        self._first = dict(zip(self._nodes, accumulate([0, *sizes[:-1]]), strict=True))
        self._states = sum(sizes)
        self._costs = [np.array(reduced.costs[node]) for node in self._nodes]
        self._count = self._states
        self._rows = _Rows()
        for node in self._nodes:
            self._rows.add(self._variables(node, len(reduced.costs[node])), (), 1.0)
            for other, seconds in reduced.near[node].items():
                if node < other:
                    self._add_edge(node, other, seconds)

    def _variables(self, node: int, states: int) -> list[int]:
        return list(range(self._first[node], self._first[node] + states))

    def _add_edge(self, first: int, second: int, seconds: Matrix) -> None:
        """Variables for the pairs of an edge that can be; equal rows and columns of its matrix are one."""
        rows, row_of = np.unique(seconds, axis=0, return_inverse=True)
        cells, column_of = np.unique(rows, axis=1, return_inverse=True)
        number = np.full(cells.shape, -1)
        possible = np.isfinite(cells)
        number[possible] = self._count + np.arange(int(possible.sum()))
        self._costs.append(cells[possible])
        self._count += int(possible.sum())
        for side, groups, node in ((number, row_of, first), (number.T, column_of, second)):
            for group, pairs in enumerate(side):
                states = np.flatnonzero(groups.ravel() == group) + self._first[node]
                self._rows.add([int(p) for p in pairs if p >= 0], [int(s) for s in states], 0.0)

    def solution(self, graph: Graph, reduced: Reduced, limit_s: float) -> Solution | None:
        highs = highspy.Highs()
        options = {"output_flag": False, "threads": 1, "mip_rel_gap": GAP, "time_limit": limit_s}
        for option, value in options.items():
            highs.setOptionValue(option, value)
        highs.passModel(self._program())
        highs.run()
        if not highs.getSolution().value_valid:
            return None
        values = np.array(highs.getSolution().col_value)
        found = {node: int(reduced.kept[node][states]) for node, states in self._chosen(reduced, values)}
        chosen = reduced.complete(found)
        bound_s = highs.getInfo().mip_dual_bound / _MS + reduced.base
        why = highs.modelStatusToString(highs.getModelStatus())
        return Solution(chosen, graph.seconds(chosen), bound_s, why, len(self._nodes))

    def _chosen(self, reduced: Reduced, values: np.ndarray) -> Iterator[tuple[int, int]]:
        for node in self._nodes:
            first = self._first[node]
            yield node, int(values[first : first + len(reduced.costs[node])].argmax())

    def _program(self) -> highspy.HighsLp:
        program, rows = highspy.HighsLp(), self._rows
        costs = np.concatenate(self._costs) * _MS
        possible = np.isfinite(costs)
        program.num_col_, program.num_row_ = self._count, len(rows.totals)
        program.col_cost_ = np.where(possible, costs, 0.0)
        program.col_lower_ = np.zeros(self._count)
        program.col_upper_ = np.where(possible, 1.0, 0.0)
        program.row_lower_ = program.row_upper_ = np.array(rows.totals)
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_ = np.array(rows.starts)
        program.a_matrix_.index_ = np.array(rows.variables, dtype=np.int32)
        program.a_matrix_.value_ = np.array(rows.factors)
        integer, real = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
        program.integrality_ = [integer] * self._states + [real] * (self._count - self._states)
        return program
