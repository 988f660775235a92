"""The search around: the best of all choices is found, and no choice is below the bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import pytest

from shardc.cost.schedule_form import FORMS, ONE_F_ONE_B
from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.chosen import Chosen
from shardc.passes.search.clock import Clock
from shardc.passes.search.solver import ask
from shardc.passes.search.solver.solve import Solution
from shardc.planning.auto.ahead import Find
from shardc.planning.auto.choose import Around, search_around
from shardc.planning.auto.space import RECOMPUTED, Choice
from shardc.planning.candidates import Candidate

STAGES, COUNTS = (1, 2, 4, 8), (1, 2, 4, 8, 16)


@dataclass
class Drawn:
    """A model: what each choice takes and holds, at least its floor; memory makes choices dearer.

    The work of a micro-batch, what gradients of weights take of it, what runs once a step, and messages
    between stages are drawn.
    """

    seed: int
    looked_at: list[Choice] = field(default_factory=list)

    def __post_init__(self) -> None:
        draw = np.random.default_rng(self.seed)
        self.weights_s = draw.uniform(0.1, 0.4)
        self.floor_s, once_s = 1.0, 0.1 * draw.random()
        self.choices = [
            Choice(stages, count, (("data", 8 // stages),), recompute, form)
            for stages in STAGES
            for count in COUNTS
            if count >= stages
            for recompute in RECOMPUTED
            for form in (FORMS if stages > 1 else (ONE_F_ONE_B,))
            if form.allows(stages, count, layers=32)
        ]
        sent, late = (
            {(s, n): at for s in STAGES for n, at in zip(COUNTS, np.sort(draw.random(5)), strict=True)}
            for _ in range(2)
        )
        self.inner_s, self.sends_s, self.bytes = {}, {}, {}
        message_s, more = 0.02 * draw.random(), dict[object, float]()
        for choice in self.choices:
            count = choice.form.sends(choice.stages, choice.micro_batches)
            self.sends_s[choice] = message_s * count / choice.micro_batches
            again, key = RECOMPUTED.index(choice.recompute), (choice.stages, choice.micro_batches)
            if choice.stages == 1:  # more micro-batches never take less
                rest, weights = sent[1, 1] + 0.01 * choice.micro_batches, late[1, 1]
            else:
                rest, weights = sent[key], late[key]
            rest += self.floor_s * (1 + 0.1 * again) - self.weights_s
            weights = self.weights_s + 0.5 * weights
            self.inner_s[choice] = rest * choice.waiting + weights * choice.weights_waiting + once_s
            held = 10.0 / (1 + again) * choice.in_flight + choice.pending / choice.micro_batches
            step = choice.parts, choice.recompute
            self.bytes[choice] = held + more.setdefault(step, draw.random())
        self.seconds = {choice: self.inner_s[choice] + self.sends_s[choice] for choice in self.choices}

    def search(self, find: Find | None = None, capacity: float = inf, **more: Any) -> Around:
        find = find or (lambda *asked: self.find(capacity, *asked))
        return search_around(self.choices, find, added=self.sends_s.__getitem__, **more)

    def find(self, capacity: float, choice: Choice, cutoff_s: float) -> Found | Unfit:
        self.looked_at.append(choice)
        weights_s, seconds = self.weights_s * choice.weights_waiting, self.inner_s[choice]
        floor_s = (self.floor_s - self.weights_s) * choice.waiting + weights_s
        if self.bytes[choice] > capacity:
            least = self.bytes[choice] / capacity
            return Unfit(least, floor_s, free_s=seconds, floor_weights_s=weights_s)
        if seconds >= cutoff_s:
            return Unfit(0.0, floor_s, seconds, free_s=seconds, floor_weights_s=weights_s)
        solution, held = Solution([], seconds, seconds, "", seconds), self.bytes[choice]
        return Found(Chosen([], [], []), solution, 0, held, floor_s, floor_weights_s=weights_s)


@pytest.mark.parametrize("seeds", [range(n, n + 20) for n in range(0, 100, 20)], ids=str)
def test_the_best_of_all_choices_is_found(seeds: range) -> None:
    for drawn in map(Drawn, seeds):
        for capacity in (inf, 6.0, 2.0, 0.9):
            fitting = [drawn.seconds[c] for c in drawn.choices if drawn.bytes[c] <= capacity]
            around = drawn.search(capacity=capacity)
            assert bool(around.found) == bool(fitting)
            if fitting:
                assert around.found[0].seconds == pytest.approx(min(fitting))
                assert around.bound_s <= min(fitting) + 1e-12
                assert around.gap == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("seeds", [range(n, n + 20) for n in range(0, 60, 20)], ids=str)
def test_evictions_of_what_was_found_count(seeds: range) -> None:
    """They take 0.3 s at least and up to 0.6: balanced choices are as much slower, and no bound is above."""
    for drawn in map(Drawn, seeds):
        added = {c: (0.3 + 0.3 * c.in_flight) * c.form.balances for c in drawn.choices}
        of = {choice.candidate.text: added[choice] for choice in drawn.choices}

        def evicting(
            candidate: Candidate, found: Found | Unfit, of: dict[str, float] = of
        ) -> tuple[float, float]:
            return of[candidate.text], 0.3 * candidate.form.balances

        for capacity in (6.0, 2.0):
            seconds = {c: s + added[c] for c, s in drawn.seconds.items() if drawn.bytes[c] <= capacity}
            around = drawn.search(capacity=capacity, evicting=evicting)
            assert around.found[0].seconds == pytest.approx(min(seconds.values()))
            assert around.bound_s <= min(seconds.values()) + 1e-12
            assert all(of.seconds == pytest.approx(seconds[of.choice]) for of in around.found)


def test_choices_that_certainly_lack_memory_are_not_looked_at() -> None:
    """But the first one is; what is found and the bound are the same."""
    saved = 0
    for drawn in map(Drawn, range(20)):
        for capacity in (6.0, 2.0, 0.9):
            around, looked_at = drawn.search(capacity=capacity), len(drawn.looked_at)
            drawn.looked_at.clear()

            def least(choice: Choice, drawn: Drawn = drawn, capacity: float = capacity) -> float:
                return 0.9 * drawn.bytes[choice] / capacity

            other = drawn.search(capacity=capacity, least=least)
            assert [found.seconds for found in other.found[:1]] == [of.seconds for of in around.found[:1]]
            assert other.bound_s == pytest.approx(around.bound_s)
            assert all(least(choice) <= 1 for choice in drawn.looked_at[1:])
            saved += looked_at - len(drawn.looked_at)
            drawn.looked_at.clear()
    assert saved > 100


def test_a_later_search_begins_where_an_earlier_one_ended() -> None:
    """With less memory the best is found, too, and what was best before is looked at first."""
    for drawn in map(Drawn, range(40)):
        before = drawn.search(capacity=6.0)
        if not before.found:
            continue
        drawn.looked_at.clear()
        fitting = [drawn.seconds[c] for c in drawn.choices if drawn.bytes[c] <= 2.0]
        around = drawn.search(capacity=2.0, start=before.start)
        assert drawn.looked_at[0] == before.found[0].choice
        assert around.found[0].seconds == pytest.approx(min(fitting))
        assert around.bound_s <= min(fitting) + 1e-12


def test_most_choices_are_passed_over() -> None:
    looked_at = 0
    for drawn in map(Drawn, range(20)):
        drawn.search()
        assert len(set(drawn.looked_at)) == len(drawn.looked_at)
        looked_at += len(drawn.looked_at)
    assert looked_at < 0.6 * 20 * len(Drawn(0).choices)


def test_a_time_limit_leaves_a_bound() -> None:
    drawn = Drawn(3)
    around = drawn.search(limit_s=0.0)
    assert around.looked_at == 1
    assert "time limit" in around.why
    assert drawn.floor_s <= around.bound_s <= min(drawn.seconds.values())
    assert around.gap > 0
    assert not around.is_stopped


def test_a_clock_that_is_over_ends_the_search_with_what_was_found() -> None:
    drawn, clock = Drawn(3), Clock()

    def find(choice: Choice, cutoff_s: float) -> Found | Unfit:
        if len(drawn.looked_at) == 1:
            clock.interrupt()
        return drawn.find(inf, choice, cutoff_s)

    around = drawn.search(find, clock=clock)
    assert around.looked_at == 2
    assert around.is_stopped
    assert around.why == "interrupted"
    assert around.found[0].seconds == min(drawn.seconds[choice] for choice in drawn.looked_at)
    assert around.bound_s <= min(drawn.seconds.values())


def test_until_something_fits_the_most_is_recomputed_next_but_without_stages_last() -> None:
    drawn = Drawn(3)
    capacity = min(drawn.bytes.values()) * 0.99
    drawn.search(capacity=capacity)
    first, *others = drawn.looked_at
    assert (first.stages, first.recompute) == (1, "none")
    tried = [(choice.stages, choice.recompute) for choice in others]
    before = tried[: tried.index((1, "full"))]
    assert {stages for stages, recompute in before if recompute == "full"} == {*STAGES} - {1}
    assert all(stages > 1 for stages, _ in before)


def test_choices_that_are_expected_to_lack_memory_are_not_among_the_first() -> None:
    """Memory in proportion to the micro-batches in flight: without recomputation nothing fits."""
    looked_at = list[Choice]()

    def find(choice: Choice, cutoff_s: float) -> Found | Unfit:
        looked_at.append(choice)
        if choice.recompute == "none":
            return Unfit(8.0 * choice.stages / choice.micro_batches, 1.0)
        return Found(Chosen([], [], []), Solution([], 2.0, 2.0, ""), 0, 1.0, 1.0)

    several = [Choice(stages, stages, (("data", 1),), policy) for stages in STAGES for policy in RECOMPUTED]
    assert search_around(several, find).found[0].seconds == 2.0
    assert [choice.recompute for choice in looked_at[:2]] == ["none", "selective"]
    assert looked_at[1].stages > 1


class Running:
    """Search that has begun, and runs until its result is asked for, or nobody needs it."""

    count = 0

    def __init__(self, find: Callable[[], Found | Unfit]) -> None:
        self.find, self.is_busy = find, True
        Running.count += 1

    def result(self) -> Found | Unfit:
        self.end()
        return self.find()

    def end(self) -> None:
        Running.count -= self.is_busy
        self.is_busy = False


@pytest.mark.parametrize("capacity", [inf, 2.0])
def test_the_next_choice_begins_while_a_search_runs(capacity: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result stays the same, and no search is left."""
    monkeypatch.setattr(ask, "MOST", 2)
    for drawn in map(Drawn, range(20)):
        alone, most = drawn.search(capacity=capacity), [0]

        def begin(choice: Choice, cutoff_s: float, d: Drawn = drawn, most: list[int] = most) -> Running:
            running = Running(lambda: d.find(capacity, choice, cutoff_s))
            most.append(Running.count)
            return running

        around = drawn.search(capacity=capacity, begin=begin)
        assert around.bound_s == alone.bound_s
        assert [found.seconds for found in around.found[:1]] == [found.seconds for found in alone.found[:1]]
        assert max(most) == 2
        assert Running.count == 0


def test_what_any_choice_needs_is_known_only_if_none_was_left() -> None:
    whole, stopped = Drawn(0).search(capacity=1e-3), Drawn(0).search(capacity=1e-3, limit_s=0.0)
    assert not whole.found and not stopped.found
    assert whole.needed_part > 1
    assert stopped.needed_part == 0


def test_an_error_of_a_search_ends_all() -> None:
    def find() -> Found | Unfit:
        raise ValueError("no such choice")

    with pytest.raises(ValueError, match="no such choice"):
        Drawn(0).search(begin=lambda choice, cutoff_s: Running(find))
    assert Running.count == 0


@pytest.mark.parametrize("seed", range(5))
def test_choices_whose_known_bound_is_no_better_get_no_search(seed: int) -> None:
    plain, bounded = Drawn(seed), Drawn(seed)
    best = min(plain.seconds.values())
    found = bounded.search(known=bounded.seconds)
    assert found.found[0].seconds == pytest.approx(best)
    assert found.bound_s == pytest.approx(best)
    assert len(bounded.looked_at) <= plain.search().looked_at
