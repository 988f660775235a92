"""Searches that begin before they are asked for."""

from __future__ import annotations

from math import inf
from threading import Event, Thread

import numpy as np
import pytest

from shardc.diagnostics.passes.search import SolverFailed
from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.clock import Clock
from shardc.passes.search.graph import Graph
from shardc.passes.search.solver import ask
from shardc.planning.auto.ahead import Ahead
from shardc.planning.auto.space import Choice

FIRST, SECOND = (Choice(1, count, (("data", 2),)) for count in (1, 2))
WAIT_S = 60


class Searches:
    """Inner searches; that of FIRST ends once SECOND's was ``begun``, if it ``waits``."""

    def __init__(self, *, waits: bool = True) -> None:
        self.asked = list[tuple[Choice, float]]()
        self.begun = Event()
        self.waits = waits

    def find(self, choice: Choice, cutoff_s: float) -> Found | Unfit:
        self.asked.append((choice, cutoff_s))
        if choice == SECOND:
            self.begun.set()
        elif self.waits:
            assert self.begun.wait(WAIT_S)
        return Unfit(0.0, 0.0, bound_s=cutoff_s)


@pytest.fixture(autouse=True)
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "MOST", 2)


@pytest.mark.parametrize(
    ("begun_with", "asked"),
    [(3.0, [(FIRST, 5.0), (SECOND, 3.0), (SECOND, 4.0)]), (5.0, [(FIRST, 5.0), (SECOND, 5.0)])],
    ids=["too low", "high enough"],
)
def test_a_search_that_began_is_asked_again_only_if_its_limit_was_too_low(
    begun_with: float, asked: list[tuple[Choice, float]]
) -> None:
    searches = Searches()
    with Ahead(searches.find, lambda choice, cutoff_s: None) as ahead:
        ahead.found(FIRST, 5.0, lambda: (SECOND, begun_with))
        found = ahead.found(SECOND, 4.0, lambda: None)
    assert found.bound_s >= 4.0
    assert searches.asked == asked


def test_nothing_begins_without_a_limit() -> None:
    searches, prepared = Searches(waits=False), list[Choice]()

    def prepare(choice: Choice, cutoff_s: float) -> None:
        prepared.append(choice)
        if choice == SECOND:
            assert cutoff_s == inf

    with Ahead(searches.find, prepare) as ahead:
        ahead.found(FIRST, 5.0, lambda: (SECOND, None))
    assert searches.asked == [(FIRST, 5.0)]
    assert prepared[0] == FIRST


def test_whoever_waits_for_an_abandoned_process_is_told_so() -> None:
    draw, failed = np.random.default_rng(0), list[str]()
    hard = Graph(points=1)
    for node in range(60):
        hard.costs[hard.add_node(30)] = draw.random(30)
        for other in range(node):
            hard.add_edge(other, node, draw.random((30, 30)))

    def wait() -> None:
        try:
            ask.cheapest(hard, Clock())
        except SolverFailed as error:
            failed.append(str(error))

    waiting = Thread(target=wait)
    waiting.start()
    while waiting.is_alive():
        ask.abandon()
        waiting.join(0.2)
    assert len(failed) == 1
    easy = Graph(points=1)
    easy.costs[easy.add_node(2)] = np.array([1.0, 2.0])
    assert ask.cheapest(easy, Clock()).chosen == [0]
