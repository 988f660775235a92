"""Search for the cheapest step in which one product has another sharding than in the plan found.

The network of the search is solved again without the chosen state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite

from shardc.cost.work import MATMULS, flops
from shardc.dialects.location import source_line
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.search.answer.answer import CLEAR, RunnerUp
from shardc.passes.search.clock import Clock
from shardc.passes.search.graph import Graph
from shardc.passes.search.searchers.walk import Walk, settle
from shardc.passes.search.solver import ask
from shardc.passes.search.solver.ask import cheapest
from shardc.passes.search.solver.solve import Solution
from shardc.passes.search.step.step_graph import BACKWARD, OPTIMIZER, StepGraph
from shardc.passes.search.ways import Choice, Way
from shardc.workers.forked import Forked, can_fork
from shardc.workers.process import Ended

MOST = 9
"""Limit of products whose runner-up is searched, those with the most time first."""
LIMIT_S = 5.0
"""Seconds after which no other runner-up is searched."""
_SWEEPS = 3
"""How often a cheaper plan found among the runners-up replaces the plan."""

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


def largest(products: Products, step: StepGraph) -> list[int]:
    """Return the nodes that take the most time without sharding, at most MOST of them."""
    return sorted(products, key=lambda node: -float(step.graph.costs[node][0]))[:MOST]


def improved(
    graph: Graph, solution: Solution, nodes: Sequence[int], capacity: float, clock: Clock
) -> tuple[Solution, Mapping[int, Other]]:
    """Return the solution and, for each of ``nodes``, the cheapest choice with another state.

    If one of these choices is cheaper than the solution and fits, it replaces the solution, and the others
    are searched again, up to _SWEEPS times. After that, choices whose state is now the solution's are left
    out. ``clock``: whose interruption ends it.
    """
    others: Mapping[int, Other] = {}
    for _ in range(_SWEEPS):
        others = _on_all_cores(graph, solution, nodes, capacity, clock)
        best = min((o for o in others.values() if o.fits), key=lambda o: o.seconds, default=None)
        if best is None or best.seconds >= solution.seconds:
            return solution, others
        solution = replace(solution, chosen=best.chosen, seconds=best.seconds)
    chosen = solution.chosen
    return solution, {node: other for node, other in others.items() if other.chosen[node] != chosen[node]}


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


def _on_all_cores(
    graph: Graph, solution: Solution, nodes: Sequence[int], capacity: float, clock: Clock
) -> Mapping[int, Other]:
    """Return the result of :func:`cheapest_others`, with a part of the nodes in each of some children."""
    count = min(ask.most(), len(nodes))
    if count < 2 or not can_fork():
        return cheapest_others(graph, solution, nodes, capacity)
    parts = [nodes[first::count] for first in range(count)]
    children = [Forked(partial(cheapest_others, graph, solution, part, capacity)) for part in parts]
    others: dict[int, Other] = {}
    for child, part in zip(children, parts, strict=True):
        try:
            others |= child.result(lambda: clock.is_interrupted)
        except Ended:
            others |= {} if clock.is_interrupted else cheapest_others(graph, solution, part, capacity)
    return {node: others[node] for node in nodes if node in others}


def cheapest_others(
    graph: Graph, solution: Solution, nodes: Sequence[int], capacity: float = inf
) -> Mapping[int, Other]:
    """Return, for each node, the cheapest choice found in which it has another state than in ``solution``.

    Nodes for which there is none are left out, and those whose turn comes after LIMIT_S. If the bound leaves
    room for a cheaper choice, or if the choice does not fit, single nodes are changed as long as that
    improves it.
    """
    if solution.weight is None:
        return {}
    weighted = graph.weighted(solution.weight)
    paid_s = 0.0 if solution.prices is None else float(solution.prices.sum()) * capacity
    others, clock = dict[int, Other](), Clock(LIMIT_S)
    for node in nodes:
        found = cheapest(weighted, Clock(), solution.prices, (node, solution.chosen[node]))
        if found.chosen is not None:
            other = _other(graph, solution, node, capacity, found.chosen, found.bound_s - paid_s)
            others |= {node: other} if isfinite(other.seconds) else {}
        if clock.is_over:
            break
    return others


def _other(
    graph: Graph, solution: Solution, node: int, capacity: float, chosen: list[int], bound_s: float
) -> Other:
    """Return the better of ``chosen`` and the choices near to it and to the solution."""
    seconds = graph.total(chosen)
    if seconds - bound_s > CLEAR * solution.seconds or (graph.bytes_at(chosen) > capacity).any():
        starts = [chosen, [*solution.chosen[:node], chosen[node], *solution.chosen[node + 1 :]]]
        walks = [Walk(graph, start, capacity) for start in starts]
        for walk in walks:
            settle(walk, node)
        best = min(walks, key=lambda walk: (walk.excess > 0, walk.cost))
        if isfinite(best.cost):
            chosen, seconds = best.chosen, best.cost
    return Other(chosen, seconds, bound_s, bool((graph.bytes_at(chosen) <= capacity).all()))


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
