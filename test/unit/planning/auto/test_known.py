"""Reuse of a search's results by a search with another memory limit."""

from __future__ import annotations

from math import inf

import numpy as np

from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.chosen import Chosen
from shardc.passes.search.solver.solve import Solution
from shardc.planning.auto.known import Known
from shardc.planning.candidates import Candidate

CAPACITY = 100.0
PLANS = [(1.0, 80.0), (1.5, 50.0), (2.5, 20.0)]
"""Seconds and bytes of the ways that the drawn search has."""


def of(room: float) -> Candidate:
    return Candidate({"data": 2}, "auto", room=room)


def searched(candidate: Candidate, cutoff_s: float) -> Found | Unfit:
    """The fastest of PLANS that fits, as the search inside answers."""
    fitting = [plan for plan in PLANS if plan[1] <= candidate.room * CAPACITY]
    if not fitting:
        return Unfit(20.0, 0.5)
    seconds, held = min(fitting)
    if seconds >= cutoff_s:
        return Unfit(20.0, 0.5, seconds)
    solution = Solution([], seconds, seconds, "", is_tight=len(fitting) < len(PLANS))
    return Found(Chosen([], [], []), solution, 0, held, 0.5)


def seconds_of(answer: Found | Unfit) -> float:
    return answer.bound_s if isinstance(answer, Unfit) else answer.solution.seconds


def test_answers_are_those_of_a_search_and_some_are_known() -> None:
    draw, searches, asked = np.random.default_rng(0), 0, 0
    for _ in range(200):

        def find(candidate: Candidate, cutoff_s: float) -> Found | Unfit:
            nonlocal searches
            searches += 1
            return searched(candidate, cutoff_s)

        known = Known(find, CAPACITY, lambda: False)
        for _ in range(6):
            asked += 1
            room, cutoff_s = (
                float(draw.choice([0.1, 0.3, 0.6, 1.0, 2.0])),
                float(draw.choice([1.2, 2.0, inf])),
            )
            answer, whole = known(of(room), cutoff_s), searched(of(room), cutoff_s)
            if seconds_of(whole) < cutoff_s:
                assert seconds_of(answer) == seconds_of(whole)
            else:
                assert seconds_of(answer) >= cutoff_s
            if isinstance(answer, Found):
                assert answer.held_bytes <= room * CAPACITY
    assert searches < 0.7 * asked


def test_what_somebody_ended_is_not_kept() -> None:
    asked = []

    def find(candidate: Candidate, cutoff_s: float) -> Found | Unfit:
        asked.append(candidate)
        return searched(candidate, cutoff_s)

    known = Known(find, CAPACITY, lambda: True)
    for _ in range(2):
        known(of(1.0), inf)
    assert len(asked) == 2
