"""Number of timed pairs, and the decisions from them, on a simulated clock."""

from __future__ import annotations

import random
from itertools import cycle

import pytest

from shardc.backends.tuning.decision import Rule, Verdict, take_turns


class Clock:
    """Calls of given milliseconds, each with a factor of noise; ``calls`` is who was called on
    which inputs.
    """

    def __init__(self, noise) -> None:
        self._noise, self.calls = iter(noise), []

    def of(self, name: str, milliseconds: float):
        def call(inputs: int) -> float:
            self.calls.append((name, inputs))
            return 1e-3 * milliseconds * next(self._noise)

        return call

    def pairs(self, candidate: float, incumbent: float, rule: Rule | None = None):
        return take_turns(self.of("c", candidate), self.of("i", incumbent), rule or Rule())


def quiet():
    return cycle([1.0])


def noisy(seed: int, share: float = 0.02):
    draw = random.Random(seed)
    while True:  # now and then, something else runs
        yield (1 + share * draw.random()) * (3.0 if draw.random() < 0.05 else 1.0)


def test_a_clear_loser_takes_two_pairs():
    clock = Clock(quiet())
    found = clock.pairs(2.0, 1.0)
    assert found.verdict is Verdict.SLOWER and len(clock.calls) == 4
    assert found.ratio == 2.0


def test_a_loser_by_little_takes_a_few_more():
    assert len(Clock(quiet()).pairs(1.12, 1.0).ratios) == 3
    assert len(Clock(quiet()).pairs(1.03, 1.0).ratios) == 5


def test_equals_are_given_up():
    found = Clock(quiet()).pairs(1.0, 1.0)
    assert found.verdict is Verdict.EQUAL and len(found.ratios) == 8


def test_they_take_turns_in_being_first_and_never_read_what_was_just_read():
    clock = Clock(quiet())
    clock.pairs(1.0, 1.0)
    assert clock.calls[:6] == [("c", 0), ("i", 1), ("i", 0), ("c", 1), ("c", 0), ("i", 1)]


@pytest.mark.parametrize("seed", range(5))
def test_outliers_do_not_decide(seed: int):
    assert Clock(noisy(seed)).pairs(0.9, 1.0).verdict is Verdict.FASTER
    assert Clock(noisy(seed)).pairs(1.1, 1.0).verdict is Verdict.SLOWER
    found = Clock(noisy(seed)).pairs(0.9, 1.0)
    assert found.ratio == pytest.approx(0.9, rel=0.02)
    assert found.spread(Rule()) <= 0.02


def test_no_more_pairs_than_the_rule_allows():
    draw = random.Random(0)
    wild = (draw.choice([1.0, 5.0]) for _ in range(1000))
    assert len(Clock(wild).pairs(1.0, 1.0, Rule(most=12)).ratios) <= 12


def test_long_calls_end_with_their_budget():
    assert len(Clock(noisy(1, 0.2)).pairs(1.0, 1.0, Rule(budget_s=0.01)).ratios) == 5


def test_the_bound_holds_the_median():
    rule = Rule()
    assert rule.bounds([1.0] * 4) is None
    assert rule.bounds([1.0, 2.0, 3.0, 4.0, 5.0]) == (1.0, 5.0)
    inside, draw = 0, random.Random(0)
    for _ in range(1000):
        found = rule.bounds([draw.lognormvariate(0, 0.1) for _ in range(15)])
        assert found is not None
        low, high = found
        inside += low <= 1.0 <= high
    assert inside > 900
