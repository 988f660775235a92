"""Integer program of a memory budget: chooses the ops to recompute with the least work.

For each forward op, ``again`` is 1 if it is recomputed. ``made[j]`` says whether backward has recomputed it
by the op's start number ``j`` (:attr:`~shardc.passes.budget.step_graph.StepGraph.starts`), and ``kept``
whether its result lives on from the forward. Linear constraints derive both from ``again``, and from them the
bytes that live at each position. It is Checkmate's program (Jain et al. 2020), but computes no value three
times. So there are few variables, and equal layers share them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from shardc.passes.budget.mixed_integer import Row, solve
from shardc.passes.budget.step_graph import StepGraph, Storage

Variable = tuple[str, Hashable, int]


@dataclass(frozen=True)
class Solution:
    """The ops to recompute, and the resulting peak and work of the step."""

    again: frozenset[int]
    peak_bytes: float
    work_bytes: float
    values: np.ndarray = field(repr=False, compare=False)
    """Values of the variables."""


@dataclass
class _Rows:
    """Variables by name, and constraints ``row >= least``."""

    names: dict[Variable, int] = field(default_factory=dict)
    rows: list[tuple[Row, float]] = field(default_factory=list)

    def of(self, what: str, kind: Hashable, number: int = 0) -> int:
        return self.names.setdefault((what, kind, number), len(self.names))

    def at_least(self, least: float, *terms: tuple[int, float]) -> None:
        row: Row = {}
        for variable, factor in terms:
            row[variable] = row.get(variable, 0.0) + factor
        self.rows.append((row, least))


class BudgetProgram:
    """The integer program of a step, which can be solved for several budgets."""

    def __init__(self, graph: StepGraph) -> None:
        self._graph, self._rows = graph, _Rows()
        self._size = float(max(graph.base_bytes, default=0) or 1)
        """Unit of bytes, so that numbers are near 1."""
        self._work: Row = {}
        self._changes: dict[int, Row] = {}
        """Position -> change of the bytes of variables."""
        self._constant: dict[int, float] = {}
        self._read: list[int] = []
        """Variables of values that backward itself reads."""
        for op in reversed(tuple(graph.ops)):
            if graph.starts[op]:
                self._decide(op)
        self._peaks = list(self._positions())

    def kept(self) -> Solution:
        """Return the solution without recomputation."""
        values = np.zeros(len(self._rows.names))
        values[self._read] = 1.0
        return self._solution(values)

    def least(self) -> Solution:
        """Return the solution with the least peak, and the least work for that peak."""
        return self.within(self._least_peak.peak_bytes * (1 + 1e-6))

    def within(self, peak_bytes: float) -> Solution:
        """Return the solution with the least work for a peak of at most ``peak_bytes``, which must be
        feasible.
        """
        return self._solve(peak_bytes)

    @cached_property
    def _least_peak(self) -> Solution:
        """Return a solution with the least peak, ignoring work; it fits every feasible budget."""
        return self._solve(None)

    def _decide(self, op: int) -> None:
        graph, rows = self._graph, self._rows
        known, starts = graph.ops[op], graph.starts[op]
        kind = (known.kind, len(starts))
        if not known.is_kept:
            again = rows.of("again", kind)
            made = [rows.of("made", kind, j) for j in range(len(starts))]
            self._work[made[-1]] = self._work.get(made[-1], 0.0) + known.work_bytes
            for earlier, later in pairwise(made):
                rows.at_least(0, (later, 1), (earlier, -1))
            reads = [s.backward[0] for s in graph.made_by[op] if s.backward]
            if reads:
                rows.at_least(0, (made[graph.start(op, min(reads))], 1), (again, -1))
            for reader in graph.readers(op):
                for i, position in enumerate(graph.starts[reader]):
                    at = made[graph.start(op, position)]
                    rows.at_least(-1, (at, 1), (self._made(reader, i), -1), (again, -1))
        for number, storage in enumerate(graph.made_by[op]):
            self._keep(storage, (*kind, number))

    def _made(self, op: int, start: int) -> int:
        kind = (self._graph.ops[op].kind, len(self._graph.starts[op]))
        return self._rows.of("made", kind, start)

    def _keep(self, storage: Storage, kind: tuple[Hashable, int, int]) -> None:
        """Add the bytes of a storage between its last use in the forward and its last use in backward."""
        graph, rows, op = self._graph, self._rows, storage.op
        last = graph.last_use(storage)
        if last <= storage.forward_end:
            return
        if graph.ops[op].is_kept and storage.backward:
            self._live(None, storage, storage.forward_end + 1, last)
            return
        kept, is_free = rows.of("kept", kind), not graph.ops[op].is_kept
        again = [(rows.of("again", kind[:2]), 1.0)] if is_free else []
        if storage.backward:
            self._read.append(kept)
            rows.at_least(1, (kept, 1), *again)
        for reader in storage.readers:
            if not graph.ops[reader].is_kept and graph.starts[reader]:
                rows.at_least(0, (kept, 1), (self._made(reader, len(graph.starts[reader]) - 1), -1), *again)
        self._live(kept, storage, storage.forward_end + 1, last)
        starts = graph.starts[op] if is_free else []
        for j, start in enumerate(starts):
            end = starts[j + 1] - 1 if j + 1 < len(starts) else last
            self._live(self._made(op, j), storage, max(start, storage.forward_end + 1), min(end, last))

    def _live(self, variable: int | None, storage: Storage, first: int, last: int) -> None:
        if last < first:
            return
        size = storage.size_bytes / self._size
        for position, change in ((first, size), (last + 1, -size)):
            if variable is None:
                self._constant[position] = self._constant.get(position, 0.0) + change
                continue
            row = self._changes.setdefault(position, {})
            row[variable] = row.get(variable, 0.0) + change

    def _positions(self) -> Iterator[tuple[Row, float]]:
        """Yield the live bytes at each position, of variables and others; of equal rows only the largest."""
        base = np.array(self._graph.base_bytes, dtype=float) / self._size
        constant = np.zeros(len(base) + 1)
        for position, change in self._constant.items():
            constant[min(position, len(base))] += change
        fixed = base + np.cumsum(constant)[: len(base)]
        row: Row = {}
        bounds = sorted({0, len(base), *(p for p in self._changes if p < len(base))})
        largest: dict[frozenset[tuple[int, float]], float] = {}
        for first, end in pairwise(bounds):
            for variable, change in self._changes.get(first, {}).items():
                row[variable] = row.get(variable, 0.0) + change
                if abs(row[variable]) < 1e-12:
                    del row[variable]
            key = frozenset(row.items())
            largest[key] = max(largest.get(key, 0.0), float(fixed[first:end].max()))
        for key, most in largest.items():
            yield dict(key), most

    def _solve(self, peak_bytes: float | None) -> Solution:
        """Solve for a peak, or for the least peak if it is None."""
        count = len(self._rows.names)
        rows = [*self._rows.rows]
        limit = 0.0 if peak_bytes is None else peak_bytes / self._size
        peak: Row = {count: 1.0} if peak_bytes is None else {}
        for row, base in self._peaks:
            rows.append(({**{v: -size for v, size in row.items()}, **peak}, base - limit))
        cost = np.zeros(count + 1)
        if peak_bytes is None:
            cost[count] = 1.0
        else:
            total = sum(self._work.values()) or 1.0
            for variable, work in self._work.items():
                cost[variable] = work / total
        integral = [number for (what, _, _), number in self._rows.names.items() if what == "again"]
        upper = np.ones(count + 1)
        upper[count] = np.inf
        start = None if peak_bytes is None else self._least_peak.values
        return self._solution(solve(cost, upper, integral, rows, start))

    def _solution(self, values: np.ndarray) -> Solution:
        names, ops, starts = self._rows.names, self._graph.ops, self._graph.starts
        again = {
            op
            for op, known in ops.items()
            if not known.is_kept
            and starts[op]
            and values[names["again", (known.kind, len(starts[op])), 0]] > 0.5
        }
        held = (base + sum(c * values[v] for v, c in row.items()) for row, base in self._peaks)
        peak = max(held, default=0.0)
        work = sum(work * values[v] for v, work in self._work.items())
        return Solution(frozenset(again), float(peak * self._size), float(work), values)
