"""Search for the cheapest choice of states of a graph, with a bound on any cheaper choice.

The integer program has a variable for each state of a node, and one for each pair of states of an edge, whose
sums over either side equal the states' variables. HiGHS solves it (Huangfu and Hall 2018). Its linear
relaxation mostly has an integral solution. A memory limit breaks that. Then the relaxation prices a byte at
each point of the step (Lagrangian multipliers; Geoffrion 1974), and choices are made at multiples of these
prices until one fits.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf

import highspy
import numpy as np

from shardc.passes.search.clock import Clock
from shardc.passes.search.distances import Matrix
from shardc.passes.search.graph import Graph
from shardc.passes.search.rows import Rows
from shardc.passes.search.solver.reduce import Reduced
from shardc.passes.search.solver.round import rounded

GAP = 1e-3
"""Allowed relative gap between a plan's cost and the lower bound."""
LIMIT_S = 5.0
"""Time limit of HiGHS, in seconds, for states that the relaxation leaves fractional."""
PRICES_LIMIT_S = 20.0
"""Time limit of the relaxation with memory bounds, in seconds. Without its prices no plan is found."""
_TRIES = 7
"""Number of multiples of memory's prices to try."""
_LARGEST = 1e3
"""Largest cost after scaling, because HiGHS's tolerances are absolute. Memory's capacity is scaled to 100."""


@dataclass(frozen=True)
class Solution:
    """State for each node of a graph, their cost, and a lower bound for all choices, in seconds.

    ``why``: reason why the search stopped. ``left``: number of nodes that no reduction eliminated.
    ``is_tight``: True if a cheaper choice does not fit into memory. ``prices``: prices of memory at each
    point, in the units of ``program``, which found the choice; None if memory suffices.
    """

    chosen: list[int]
    seconds: float
    bound_s: float
    why: str
    left: int
    is_tight: bool = False
    prices: np.ndarray | None = field(default=None, repr=False, compare=False)
    program: ChoiceProgram | None = field(default=None, repr=False, compare=False)

    @property
    def byte_s(self) -> float:
        """Upper bound of the seconds that one more byte of memory saves."""
        return 0.0 if self.program is None or self.prices is None else self.program.byte_s(self.prices)

    @property
    def gap(self) -> float:
        """Upper bound of the fraction of the cost that another choice could save."""
        return max(0.0, 1 - self.bound_s / self.seconds) if self.seconds else 0.0


def solve(
    graph: Graph, capacity: float = inf, cutoff_s: float = inf, clock: Clock | None = None
) -> Solution | None:
    """Return the cheapest states found with which a device holds at most ``capacity`` bytes at each point.

    None if no such states are found. The graph is first solved without the limit, which is faster. That
    solution is returned if it fits, or if no choice takes less than ``cutoff_s``. When ``clock`` is over, the
    best states so far are returned.
    """
    clock = clock or Clock()
    found = _unbounded(graph, clock)
    if found is None or found.bound_s >= cutoff_s or (graph.bytes_at(found.chosen) <= capacity).all():
        return found
    if clock.is_over:
        return None
    bounded = _bounded(graph, capacity, cutoff_s, clock)
    return replace(found, bound_s=cutoff_s) if isinstance(bounded, _Beaten) else bounded


def _unbounded(graph: Graph, clock: Clock) -> Solution | None:
    reduced = Reduced.of(graph)
    program = ChoiceProgram(reduced, inf, clock)
    chosen = program.choose()
    if chosen is None or not np.isfinite(seconds := graph.seconds(chosen)):
        return None
    return Solution(chosen, seconds, program.bound_s, program.why, len(reduced.alive), program=program)


class _Beaten:
    """Result if no choice that fits takes less than the cutoff."""


def _bounded(graph: Graph, capacity: float, cutoff_s: float, clock: Clock) -> Solution | _Beaten | None:
    """Return the best choice found at multiples of the relaxation's prices of memory."""
    reduced = Reduced.of(graph, bounded=True)
    program = ChoiceProgram(reduced, capacity, clock)
    prices = program.prices(cutoff_s)
    if prices is None or isinstance(prices, _Beaten):
        return prices
    best, at = None, prices
    low, times, high = 0.0, 1.0, inf
    for _ in range(_TRIES):
        chosen = program.choose(prices * times)
        fits = chosen is not None and bool((graph.bytes_at(chosen) <= capacity).all())
        if chosen is not None and fits and (best is None or graph.seconds(chosen) < graph.seconds(best)):
            best, at = chosen, prices * times
        is_near = best is not None and graph.seconds(best) * (1 - GAP) <= program.bound_s
        if is_near or program.bound_s >= cutoff_s or clock.is_over:
            break
        if best is not None and clock.is_enough:
            break
        low, high = (low, times) if fits else (times, high)
        times = times * 2 if high == inf else (low + high) / 2
    if best is None or not np.isfinite(graph.seconds(best)):
        return None
    why = "no multiple of memory's prices gave a cheaper plan that fits"
    seconds, left = graph.seconds(best), len(reduced.alive)
    return Solution(best, seconds, program.bound_s, why, left, is_tight=True, prices=at, program=program)


class ChoiceProgram:
    """Integer program of a reduced graph. Its relaxation is solved first, and often has integral states."""

    def __init__(self, reduced: Reduced, capacity: float, clock: Clock) -> None:
        self._reduced, self._capacity, self._clock = reduced, capacity, clock
        self._part = 100 / capacity if 0 < capacity < inf else 1.0
        self._nodes = sorted(reduced.alive)
        sizes = [len(reduced.costs[node]) for node in self._nodes]
        self._first = dict(zip(self._nodes, accumulate(sizes, initial=0), strict=False))
        self._states = self._count = sum(sizes)
        self._costs = [np.array(reduced.costs[node]) for node in self._nodes]
        self._rows = Rows()
        for node in self._nodes:
            self._rows.equal(self._variables(node), (), 1.0)
            for other, seconds in reduced.near[node].items():
                if node < other:
                    self._add_edge(node, other, seconds)
        self._memory = np.zeros((len(reduced.held), self._states))
        for node in self._nodes:
            self._memory[:, self._variables(node)] = reduced.memory[node] * self._part
        self._bounds = len(self._rows)
        """Number of the first row of memory."""
        for held, factors in zip(reduced.held, self._memory, strict=True):
            self._rows.at_most(range(self._states), list(factors), (capacity - held) * self._part)
        largest = max((float(c[np.isfinite(c)].max(initial=0.0)) for c in self._costs), default=0.0)
        self._scale = _LARGEST / largest if largest else 1.0
        self._forbidden: int | None = None
        """Variable of a state that must not be chosen."""
        self._highs = self._loaded()
        self.bound_s = -inf
        """Lower bound of the seconds of any choice, after the first solution."""
        self.why = "Optimal"

    def prices(self, cutoff_s: float) -> np.ndarray | _Beaten | None:
        """Return the price of memory at each point, scaled; None if no choice fits, or time is up."""
        if (self._reduced.held > self._capacity).any():
            return None
        bound = (cutoff_s - self._reduced.base) * self._scale
        self._highs.setOptionValue("objective_bound", bound)
        self._highs.setOptionValue("time_limit", self._highs.getRunTime() + PRICES_LIMIT_S)
        self._highs.run()
        self._highs.setOptionValue("time_limit", inf)
        self._highs.setOptionValue("objective_bound", inf)
        if self._highs.getModelStatus() == highspy.HighsModelStatus.kObjectiveBound:
            return _Beaten()
        if not self._is_solved:
            return None
        self.bound_s = self._highs.getInfo().objective_function_value / self._scale + self._reduced.base
        prices = -np.array(self._highs.getSolution().row_dual)[self._bounds :]
        for row in range(self._bounds, len(self._rows)):
            self._highs.changeRowBounds(row, -inf, inf)
        return prices

    def choose(self, prices: np.ndarray | None = None) -> list[int] | None:
        """Return the graph's states with the least cost, plus memory at ``prices``; None if impossible."""
        if not self._nodes:
            self.bound_s = self._reduced.base
            return self._reduced.complete({})
        if prices is not None:
            costs = self._own_costs() + prices @ self._memory
            numbers = np.arange(self._states, dtype=np.int32)
            self._highs.changeColsCost(self._states, numbers, costs)
        self._highs.run()
        values = self._values()
        if prices is None:
            self.bound_s = self._least() / self._scale + self._reduced.base if self._is_solved else -inf
        if values is None:
            return None
        if self._is_whole(values):
            return self._reduced.complete(self._read(values))
        if prices is None and not self._clock.is_over:
            self._solve_whole()
            self.bound_s = max(self.bound_s, self._least() / self._scale + self._reduced.base)
            whole = self._values()
            if whole is not None:
                return self._reduced.complete(self._read(whole))
        return self._rounded(values, prices)

    def _rounded(self, values: np.ndarray, prices: np.ndarray | None) -> list[int] | None:
        """Return states of the graph near a fractional solution, with memory at ``prices``."""
        by_state = self._own_costs() / self._scale
        if prices is not None:
            by_state = by_state + prices @ self._memory / self._scale
        if self._forbidden is not None:
            by_state[self._forbidden] = inf
        costs = {node: by_state[self._variables(node)] for node in self._nodes}
        shares = {node: values[self._variables(node)] for node in self._nodes}
        found = rounded(costs, shares, self._reduced.near)
        kept = self._reduced.kept
        return (
            None if found is None else self._reduced.complete({n: int(kept[n][s]) for n, s in found.items()})
        )

    def choose_without(
        self, node: int, state: int, prices: np.ndarray | None
    ) -> tuple[list[int] | None, float]:
        """Return :meth:`choose` without ``state`` of an ``undecided`` node, and a lower bound of its seconds.

        Call it after :meth:`choose`.
        """
        column = self._forbidden = self._first[node] + state
        prices = np.zeros(len(self._memory)) if prices is None else prices
        self._highs.changeColBounds(column, 0.0, 0.0)
        found = self.choose(prices)
        is_solved = self._is_solved
        least = self._highs.getInfo().objective_function_value
        self._highs.changeColBounds(column, 0.0, 1.0)
        self._forbidden = None
        if not is_solved:
            return None, inf
        if len(prices):
            least -= float(prices @ (self._capacity - self._reduced.held)) * self._part
        return found, least / self._scale + self._reduced.base

    def byte_s(self, prices: np.ndarray) -> float:
        """Return the seconds that one more byte at all points is worth."""
        return float(prices.sum()) * self._part / self._scale

    def _least(self) -> float:
        info = self._highs.getInfo()
        return info.mip_dual_bound if info.mip_node_count >= 0 else info.objective_function_value

    @property
    def _is_solved(self) -> bool:
        """True if HiGHS found the optimum."""
        return self._highs.getModelStatus() == highspy.HighsModelStatus.kOptimal

    def _own_costs(self) -> np.ndarray:
        costs = np.concatenate(self._costs)[: self._states] * self._scale
        return np.where(np.isfinite(costs), costs, 0.0)

    def _values(self) -> np.ndarray | None:
        """Return HiGHS's value of each variable; None if it found no solution."""
        solution = self._highs.getSolution()
        return np.array(solution.col_value) if solution.value_valid else None

    def _is_whole(self, values: np.ndarray) -> bool:
        """Return whether all states are integral, so that each node has one state."""
        states = values[: self._states]
        return bool(((states < 1e-6) | (states > 1 - 1e-6)).all())

    def _solve_whole(self) -> None:
        """Solve again with integral states."""
        kinds = np.full(self._states, highspy.HighsVarType.kInteger)
        numbers = np.arange(self._states, dtype=np.int32)
        self._highs.changeColsIntegrality(self._states, numbers, kinds)
        self._highs.setOptionValue("time_limit", self._highs.getRunTime() + LIMIT_S)
        self._highs.run()
        self._highs.setOptionValue("time_limit", inf)
        self.why = self._highs.modelStatusToString(self._highs.getModelStatus())
        real = np.full(self._states, highspy.HighsVarType.kContinuous)
        self._highs.changeColsIntegrality(self._states, numbers, real)

    def _read(self, values: np.ndarray) -> dict[int, int]:
        kept = self._reduced.kept
        return {node: int(kept[node][values[self._variables(node)].argmax()]) for node in self._nodes}

    def _variables(self, node: int) -> range:
        return range(self._first[node], self._first[node] + len(self._reduced.costs[node]))

    def _add_edge(self, first: int, second: int, seconds: Matrix) -> None:
        """Add variables for the possible pairs of states of an edge.

        States with equal rows, or columns, of the edge's matrix share their variables.
        """
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
                self._rows.equal([int(p) for p in pairs if p >= 0], [int(s) for s in states], 0.0)

    def _loaded(self) -> highspy.Highs:
        highs = highspy.Highs()
        options = {"output_flag": False, "threads": 1, "mip_rel_gap": GAP}
        for option, value in options.items():
            highs.setOptionValue(option, value)
        clock = self._clock
        for asks in (highs.cbSimplexInterrupt, highs.cbIpmInterrupt, highs.cbMipInterrupt):
            asks.subscribe(lambda event: event.interrupt(clock.is_over))
        program = self._rows.program(self._count)
        costs = np.concatenate(self._costs) * self._scale if self._costs else np.zeros(0)
        possible = np.isfinite(costs)
        program.col_cost_ = np.where(possible, costs, 0.0)
        program.col_lower_ = np.zeros(self._count)
        program.col_upper_ = np.where(possible, 1.0, 0.0)
        highs.passModel(program)
        return highs
