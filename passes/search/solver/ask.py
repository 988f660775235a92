"""Questions to the processes that solve cost function networks. Threads may ask at the same time.

A forked child, whose crash does not harm its parent either, solves in its own process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from math import inf
from queue import Empty, LifoQueue

import numpy as np

from shardc.diagnostics.passes.search import SolverFailed
from shardc.passes.search.clock import Clock
from shardc.passes.search.graph import Graph
from shardc.passes.search.solver.network import answer
from shardc.passes.search.solver.question import Cheapest, Network, Question
from shardc.workers.process import Ended, Process, Refused, TookTooLong

LIMIT_S = 20.0
"""CPU seconds after which a question gets the best choice so far."""
_PATIENCE = 3.0
"""Seconds to wait for an answer, per CPU second of its limit, because other processes may share the core."""
_START_S = 5.0
"""Additional seconds to wait."""

MOST = min(2, os.cpu_count() or 1)
"""Maximum number of questions that are answered at the same time."""

_processes = [Process("shardc.passes.search.solver.network:answer") for _ in range(MOST)]
_idle: LifoQueue[Process] = LifoQueue()
"""Processes without a question. The one that answered last is asked next; each starts with its first one."""
for _process in _processes:
    _idle.put(_process)
_is_forked = False


def _after_fork() -> None:
    """Leave the processes to the parent."""
    global _is_forked
    _is_forked = True


os.register_at_fork(after_in_child=_after_fork)


def most() -> int:
    """Return how many questions this process may have answered at the same time: in a forked child one."""
    return 1 if _is_forked else MOST


def start() -> None:
    """Start an idle process, without waiting for it."""
    if _is_forked:
        return
    with suppress(Empty):
        process = _idle.get_nowait()
        try:
            process.start()
        finally:
            _idle.put(process)


def end() -> None:
    """End the idle processes."""
    idle = list[Process]()
    with suppress(Empty):
        while True:
            idle.append(_idle.get_nowait())
    for process in reversed(idle):
        process.end()
        _idle.put(process)


def cheapest(
    graph: Graph,
    clock: Clock,
    prices: np.ndarray | None = None,
    without: tuple[int, int] | None = None,
    most_s: float = inf,
) -> Cheapest:
    """Return the cheapest choice of states, without late collectives.

    ``prices``: seconds that a byte costs at each point; default: nothing. The bound includes them.
    ``without``: a node, and a state of it that is not allowed. ``most_s``: seconds, with those for bytes,
    above which a choice is not wanted. Raises SolverFailed.
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
    question = Question(Network(costs, graph.edges), limit_s, most_s)
    if _is_forked:
        return answer(question)
    process = _idle.get()
    try:
        return process.ask(question, _PATIENCE * limit_s + _START_S, lambda: clock.is_interrupted)
    except TookTooLong:
        return Cheapest(None, -inf)
    except (Ended, Refused) as error:
        raise SolverFailed(problem=str(error)) from error
    finally:
        _idle.put(process)
