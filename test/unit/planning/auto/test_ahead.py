"""Searches that begin before they are asked for."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field

import pytest

from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.clock import Clock
from shardc.passes.search.solver import ask
from shardc.planning.auto.ahead import Ahead, InChild
from shardc.planning.auto.space import Choice

FIRST, SECOND, THIRD = (Choice(1, count, (("data", 2),)) for count in (1, 2, 4))


@dataclass
class Begun:
    """Search that has begun, and runs until somebody waits for its result."""

    cutoff_s: float
    is_busy: bool = True

    def result(self) -> Found | Unfit:
        self.is_busy = False
        return Unfit(0.0, 0.0, bound_s=self.cutoff_s)

    def end(self) -> None:
        self.is_busy = False


@dataclass
class Searches:
    """Inner searches, and the order in which they began."""

    began: list[tuple[Choice, float]] = field(default_factory=list)
    running: dict[Choice, Begun] = field(default_factory=dict)

    def find(self, choice: Choice, cutoff_s: float) -> Found | Unfit:
        return self.begin(choice, cutoff_s).result()

    def begin(self, choice: Choice, cutoff_s: float) -> Begun:
        self.began.append((choice, cutoff_s))
        self.running[choice] = begun = Begun(cutoff_s)
        return begun


@pytest.fixture(autouse=True)
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "MOST", 2)


@pytest.mark.parametrize(
    ("begun_with", "began"),
    [(3.0, [(FIRST, 5.0), (SECOND, 3.0), (SECOND, 4.0)]), (5.0, [(FIRST, 5.0), (SECOND, 5.0)])],
    ids=["too low", "high enough"],
)
def test_a_search_that_began_is_asked_again_only_if_its_limit_was_too_low(
    begun_with: float, began: list[tuple[Choice, float]]
) -> None:
    searches = Searches()
    with Ahead(searches.find, searches.begin) as ahead:
        ahead.found(FIRST, 5.0, lambda begun: (SECOND, begun_with))
        found = ahead.found(SECOND, 4.0, lambda begun: None)
    assert found.bound_s >= 4.0
    assert searches.began == began


def test_nothing_begins_without_a_limit() -> None:
    searches = Searches()
    with Ahead(searches.find, searches.begin) as ahead:
        ahead.found(FIRST, 5.0, lambda begun: (SECOND, None))
    assert searches.began == [(FIRST, 5.0)]


def test_two_searches_run_at_a_time_and_those_without_use_end() -> None:
    searches = Searches()
    with Ahead(searches.find, searches.begin) as ahead:
        ahead.found(FIRST, 5.0, lambda begun: (SECOND, 5.0))
        ahead.found(THIRD, 5.0, lambda begun: pytest.fail("both cores are busy"))
        assert searches.running[SECOND].is_busy
        ahead.end(lambda choice: choice != SECOND)
        assert not searches.running[SECOND].is_busy
        ahead.found(THIRD, 5.0, lambda begun: (FIRST, 5.0))
        assert searches.running[FIRST].is_busy
    assert not searches.running[FIRST].is_busy


def test_the_guess_leaves_out_all_that_has_begun() -> None:
    searches, asked = Searches(), list[list[Choice]]()

    def following(begun: Collection[Choice]) -> tuple[Choice, float]:
        asked.append([*begun])
        return (SECOND if len(asked) == 1 else THIRD), 5.0

    with Ahead(searches.find, searches.begin) as ahead:
        ahead.found(FIRST, 5.0, following)
        searches.running[SECOND].is_busy = False  # it has ended, and nobody asked for it
        ahead.found(FIRST, 5.0, following)
    assert asked == [[FIRST], [FIRST, SECOND]]
    assert [choice for choice, _ in searches.began] == [FIRST, SECOND, FIRST, THIRD]


def test_a_child_answers_and_its_answer_is_kept() -> None:
    here, kept = os.getpid(), list[Found | Unfit]()
    child = InChild(lambda: Unfit(0.0, float(os.getpid())), kept.append, Clock())
    answer = child.result()
    assert answer.floor_s != here
    assert kept == [answer]


@pytest.mark.parametrize("ended", ["by Ctrl-C", "by a crash"])
def test_without_an_answer_of_the_child_this_process_searches(ended: str) -> None:
    here, clock = os.getpid(), Clock()

    def find() -> Unfit:
        if os.getpid() != here and ended == "by a crash":
            os.abort()
        while os.getpid() != here:
            pass
        return Unfit(0.0, float(here))

    child = InChild(find, lambda answer: None, clock)
    if ended == "by Ctrl-C":
        clock.interrupt()
    assert child.result().floor_s == here
