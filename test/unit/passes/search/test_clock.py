"""Searches end with their best result at the time limit or Ctrl-C."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import combinations
from math import inf
from threading import Thread, Timer

import numpy as np
import pytest
from choice_graphs import choices, drawn, total

from shardc.passes.search.clock import INTERRUPTED, Clock
from shardc.passes.search.graph import Graph
from shardc.passes.search.solver.overlap import solve_overlapped
from shardc.passes.search.solver.solve import NoSolution, Solution


class Counted:
    """A second passes each time that somebody looks."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return float(self.looks)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(autouse=True)
def handler_of_the_test() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    after = signal.signal(signal.SIGINT, before)
    assert after is signal.default_int_handler


def test_time_is_over_at_the_limit() -> None:
    clock = Clock(3.0, now=Counted())
    assert [clock.is_over for _ in range(4)] == [False, False, True, True]
    assert clock.why == "time limit of 3 s"
    assert not Clock().is_over


def test_the_first_interrupt_ends_the_search_and_the_second_the_process() -> None:
    clock = Clock(hears=True)
    with pytest.raises(KeyboardInterrupt), clock.running():
        interrupt()
        assert clock.is_over
        assert clock.why == INTERRUPTED
        interrupt()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_inner_search_leaves_the_interrupt_to_the_outer_one() -> None:
    outer, inner = Clock(hears=True), Clock(hears=True)
    with outer.running(), inner.running():
        interrupt()
        assert outer.is_over
        assert inner.is_enough
        assert not inner.is_over
    with pytest.raises(KeyboardInterrupt), outer.running():
        interrupt()
        with inner.running():
            interrupt()


def test_only_who_hears_and_the_main_thread_take_interrupts() -> None:
    with pytest.raises(KeyboardInterrupt), Clock().running():
        interrupt()
    held = list[object]()

    def look() -> None:
        with Clock(hears=True).running():
            held.append(signal.getsignal(signal.SIGINT))

    thread = Thread(target=look)
    thread.start()
    thread.join()
    assert held == [signal.default_int_handler]


def test_an_interrupt_reaches_a_solve_that_runs() -> None:
    """It ends the process that solves; the next question starts another."""
    clock = Clock(hears=True)
    with clock.running():
        timer = Timer(0.5, interrupt)
        timer.start()
        found = solve_overlapped(hard(), clock=clock)
        timer.join()
    assert isinstance(found, NoSolution)
    assert clock.is_interrupted
    assert isinstance(solve_overlapped(drawn(0)), Solution)


def hard() -> Graph:
    """A graph whose optimum takes longer than a question may."""
    draw, graph = np.random.default_rng(0), Graph()
    for _ in range(60):
        graph.costs[graph.add_node(8)] = draw.random(8)
    for first, second in combinations(range(60), 2):
        graph.add_edge(first, second, draw.random((8, 8)))
    return graph


@pytest.mark.parametrize("capacity", [inf, 12.0])
def test_what_is_found_in_time_is_a_choice_and_no_choice_is_below_its_bound(capacity: float) -> None:
    found_of = 0
    for seed in range(25):
        graph = drawn(seed)
        fitting = [total(graph, c) for c in choices(graph) if (graph.bytes_at(c) <= capacity).all()]
        for limit_s in (0.0, 3.0, 9.0, 27.0):
            clock = Clock(limit_s, now=Counted())
            found = solve_overlapped(graph, capacity, clock=clock)
            if isinstance(found, NoSolution):
                continue
            found_of += 1
            assert (graph.bytes_at(found.chosen) <= capacity).all()
            assert found.seconds == pytest.approx(total(graph, tuple(found.chosen)))
            assert found.bound_s <= min(fitting) + 1e-6
    assert found_of > 25
