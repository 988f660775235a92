"""Search for the cheapest step in which one product has another sharding than in the plan found.

The integer program of the search is solved again, from its last solution, without the chosen state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

import numpy as np

from shardc.cost.work import MATMULS, flops
from shardc.dialects.location import source_line
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.search.answer.answer import CLEAR, RunnerUp
from shardc.passes.search.graph import BACKWARD, OPTIMIZER, Graph, StepGraph
from shardc.passes.search.searchers.walk import Walk
from shardc.passes.search.solver.solve import Solution
from shardc.passes.search.ways import Choice, Way

MOST = 9
"""Limit of products whose runner-up is searched, those with the most time first. Each takes about 50 ms."""
_SWEEPS = 3

Products = Mapping[int, Sequence[int]]
"""Node of the graph -> the numbers of its calls."""


def products_of(step: StepGraph) -> Products:
    """Return the products of the forward: matmuls, convolutions, attention."""
    found: dict[int, list[int]] = {}
    for number, call in enumerate(step.program.nodes):
        is_later = phase_of(call.op) in (BACKWARD, OPTIMIZER)
        if not is_later and not call.op.name.startswith("dist.") and flops(call.spec):
            found.setdefault(step.call_node[number], []).append(number)
    return {node: calls for node, calls in found.items() if len(step.ways[calls[0]]) > 1}


def largest(products: Products, step: StepGraph) -> set[int]:
    """Return the nodes that take the most time without sharding, at most MOST of them."""
    return {*sorted(products, key=lambda node: -float(step.graph.costs[node][0]))[:MOST]}


def improved(graph: Graph, solution: Solution, capacity: float) -> tuple[Solution, Mapping[int, Other]]:
    """Return the solution and, for each ``undecided`` node, the cheapest choice with another state.

    If one of these choices is cheaper than the solution and fits, it replaces the solution, and the others
    are searched again.
    """
    others: dict[int, Other] = {}
    for _ in range(_SWEEPS):
        found = {node: cheapest_other(graph, solution, node, capacity) for node in sorted(graph.undecided)}
        others = {node: other for node, other in found.items() if other is not None}
        best = min((o for o in others.values() if o.fits), key=lambda o: o.seconds, default=None)
        if best is None or best.seconds >= solution.seconds * (1 - CLEAR):
            break
        solution = replace(solution, chosen=best.chosen, seconds=best.seconds)
    return solution, others


def runners_up(
    step: StepGraph, products: Products, solution: Solution, others: Mapping[int, Other]
) -> list[RunnerUp]:
    """Return the other choices as text, in program order."""
    found, names = [], _Names(step.program)
    for node in sorted(others, key=lambda node: products[node][0]):
        other, calls = others[node], products[node]
        call, ways = step.program.nodes[calls[0]], step.ways[calls[0]]
        states = solution.chosen[node], other.chosen[node]
        now, then = (_cuts_text(call, ways[state], step) for state in states)
        more_s = other.seconds - solution.seconds
        least_s = min(max(other.bound_s - solution.seconds, 0.0), more_s)
        count = round(sum(step.folded.weights[number] for number in calls))
        found.append(RunnerUp(names.of(calls), count, now, then, more_s, least_s, other.fits))
    return found


@dataclass(frozen=True)
class Other:
    """Choice in which a node has another state.

    ``bound_s``: lower bound of the seconds of such choices. ``fits``: True if it fits into a device's memory.
    """

    chosen: list[int]
    seconds: float
    bound_s: float
    fits: bool


def cheapest_other(graph: Graph, solution: Solution, node: int, capacity: float = inf) -> Other | None:
    """Return the cheapest choice found in which an ``undecided`` node has another state than in ``solution``.

    None if there is none. If the bound leaves room for a cheaper choice, or if the choice does not fit,
    single nodes are changed as long as that improves it.
    """
    if solution.program is None:
        return None
    chosen, bound_s = solution.program.choose_without(node, solution.chosen[node], solution.prices)
    if chosen is None or not isfinite(seconds := graph.total(chosen)):
        return None
    if seconds - bound_s > CLEAR * solution.seconds or (graph.bytes_at(chosen) > capacity).any():
        starts = [chosen, [*solution.chosen[:node], chosen[node], *solution.chosen[node + 1 :]]]
        found = [_settled(Walk(graph, start, capacity), node) for start in starts]
        best = min(found, key=lambda walk: (walk.excess > 0, walk.cost))
        if isfinite(best.cost):
            chosen, seconds = best.chosen, best.cost
    return Other(chosen, seconds, bound_s, bool((graph.bytes_at(chosen) <= capacity).all()))


def _settled(walk: Walk, fixed: int) -> Walk:
    """Set each node but ``fixed`` to its cheapest state that fits with the others; repeat _SWEEPS times."""
    for _ in range(_SWEEPS):
        before = list(walk.chosen)
        for node, old in enumerate(before):
            costs, excess = walk.costs_of(node), walk.excess_of(node)
            state = int(np.lexsort((costs, excess))[0])
            if node != fixed and (excess[state], costs[state]) < (excess[old], costs[old]):
                walk.move(node, state)
        if walk.chosen == before:
            break
    return walk


def _cuts_text(call: Node, way: Way, step: StepGraph) -> str:
    """Return text such as ``data rows, tensor columns``; calls other than matmuls have numbered dims."""
    names = [step.axes.axes[number].name for number in step.axes.space]
    choices = [way.choices[number] for number in step.axes.space]
    return ", ".join(f"{name} {_cut_text(call, c)}" for name, c in zip(names, choices, strict=True))


def _cut_text(call: Node, choice: Choice) -> str:
    if choice is None:
        return "nothing"
    if isinstance(choice, int):
        return "terms"
    dims = call.rule.results[0]
    at = next((dim for dim, factors in enumerate(dims) if choice in factors), None)
    if at is None:
        return "sums"
    if call.spec.target not in MATMULS:
        return f"dim {at}"
    return "columns" if at == len(dims) - 1 else "rows" if at == len(dims) - 2 else "batch"


class _Names:
    """Names of products, by the modules of their weights."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._keys = dict(zip(program.arguments, program.argument_keys(), strict=True))

    def of(self, calls: Sequence[int]) -> str:
        """Return the name of a product, such as ``layers.*.mlp.up_proj`` for products of several layers."""
        names = [self._name(self._program.nodes[number]) for number in calls]
        parts = [name.split(".") for name in names]
        if len({len(part) for part in parts}) > 1:
            return f"{names[0]} and others"
        return ".".join(column[0] if len({*column}) == 1 else "*" for column in zip(*parts, strict=True))

    def _name(self, call: Node) -> str:
        """Return the module whose weight a call reads; without a weight, the operator and its source line."""
        for operand in reversed(call.operands):
            role, name = self._source(operand)
            if role == "param":
                return name.rpartition(".")[0] or name
        where = (source_line(call.op.location) or "").rpartition("/")[2]
        return f"{call.spec.target.partition('.')[2]}{f' at {where}' if where else ''}"

    def _source(self, value: int) -> tuple[str, str]:
        """Return the role and name of the argument of which a value is a view or a copy; empty if of none."""
        while value not in self._keys:
            maker = self._program.nodes[self._program.producer[value]]
            if len(maker.operands) != 1:
                return "", ""
            value = maker.operands[0]
        return self._keys[value]
