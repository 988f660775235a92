"""Explanation of a search's plan. If explaining it finds a cheaper plan, that plan is taken."""

from __future__ import annotations

from typing import Literal

from shardc.passes.search.answer.answer import Answer
from shardc.passes.search.answer.causes import causes_of
from shardc.passes.search.answer.runner_up import improved, largest, products_of, runners_up
from shardc.passes.search.clock import Clock
from shardc.passes.search.solver.solve import Solution
from shardc.passes.search.step.step_graph import StepGraph

Explain = Literal["", "plan", "runners-up"]
"""What to explain: nothing, the plan's certificate and bottleneck, or other shardings of products as well."""


def explained(
    step: StepGraph, solution: Solution, capacity: float, clock: Clock, explain: Explain
) -> tuple[Solution, Answer]:
    """Return the solution, or a cheaper one that was found while explaining it, and the explanation.

    Runners-up are left out if the search must end, because they take as long as the search.
    """
    graph, products = step.graph, products_of(step)
    nodes = [] if clock.is_enough or explain == "plan" else largest(products, step)
    solution, others = improved(graph, solution, nodes, capacity, clock)
    runners = runners_up(step, products, solution, others)
    answer = Answer(
        solution.seconds,
        solution.bound_s,
        solution.why,
        len(graph.costs),
        float(max(graph.bytes_at(solution.chosen))),
        capacity,
        tuple(causes_of(step, solution.chosen).items()),
        solution.byte_s * capacity / 100,
        tuple(runners),
        len(products) - len(runners),
    )
    return solution, answer
