"""Questions to the process that solves cost function networks."""

from __future__ import annotations

from math import inf
from threading import Lock

import numpy as np

from shardc.diagnostics.passes.search import SolverFailed
from shardc.passes.search.clock import Clock
from shardc.passes.search.graph import Graph
from shardc.passes.search.solver.question import Cheapest, Network, Question
from shardc.workers.process import Ended, Process, Refused, TookTooLong

LIMIT_S = 20.0
"""CPU seconds after which a question gets the best choice so far."""
_PATIENCE = 3.0
"""Seconds to wait for an answer, per CPU second of its limit, because other processes may share the core."""
_START_S = 5.0
"""Additional seconds to wait."""

_process = Process("shardc.passes.search.solver.network:answer")
_turn = Lock()


def start() -> None:
    """Start the process, without waiting for it. A question of another thread may be running."""
    if _turn.acquire(blocking=False):
        try:
            _process.start()
        finally:
            _turn.release()


def end() -> None:
    """End the process."""
    _process.end()


def cheapest(
    graph: Graph, clock: Clock, prices: np.ndarray | None = None, without: tuple[int, int] | None = None
) -> Cheapest:
    """Return the cheapest choice of states, without late collectives.

    ``prices``: seconds that a byte costs at each point; default: nothing. The bound includes them.
    ``without``: a node, and a state of it that is not allowed. Raises SolverFailed.
    """
    if clock.is_over:
        return Cheapest(None, -inf)
    costs = list(graph.costs)
    if prices is not None:
        costs = [alone + prices @ held for alone, held in zip(costs, graph.memory, strict=True)]
    if without is not None:
        node, state = without
        costs[node] = np.where(np.arange(len(costs[node])) == state, inf, costs[node])
    limit_s = min(LIMIT_S, clock.left_s)
    question = Question(Network(costs, graph.edges), limit_s)
    with _turn:
        try:
            return _process.ask(question, _PATIENCE * limit_s + _START_S, lambda: clock.is_interrupted)
        except TookTooLong:
            return Cheapest(None, -inf)
        except (Ended, Refused) as error:
            raise SolverFailed(problem=str(error)) from error
