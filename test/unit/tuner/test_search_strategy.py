"""Each strategy proposes legal, untried points, the same ones for the same seed, and finds what is fast."""

import random

import pytest
from surface import Surface, space, true_s

from shardc.backends.tuning.point import Point
from shardc.diagnostics.tuner import UnknownStrategy
from shardc.tuner.search_strategy.evolutionary import Evolutionary, Settings
from shardc.tuner.search_strategy.registry import STRATEGIES, find_strategy

SMALL = (1, 8, 32)


def made(name, of, seed=0):
    return find_strategy(name)(of, random.Random(seed), lambda points: [of.estimate_s(p) for p in points])


def searched(strategy, of, batches, size=8):
    measurer, tried = Surface(of), []
    for _ in range(batches):
        batch = strategy.propose(size)
        strategy.learn(measurer.measure(None, batch))
        tried += batch
    return tried


@pytest.mark.parametrize("name", STRATEGIES)
def test_proposals_are_legal_new_and_the_same_for_a_seed(name):
    of = space()
    tried = searched(made(name, of), of, 6)
    assert len(tried) == len(set(tried)) == 48
    assert all(of.refusal(p) is None for p in tried)
    assert tried == searched(made(name, of), of, 6)


@pytest.mark.parametrize("name", ["random", "evolutionary"])
def test_another_seed_proposes_others(name):
    of = space()
    assert searched(made(name, of), of, 6) != searched(made(name, of, seed=1), of, 6)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_point_of_a_small_space_is_proposed_and_then_none(name):
    of = space(SMALL)
    strategy = made(name, of)
    assert set(searched(strategy, of, 10)) == set(of.points())
    assert strategy.propose(8) == []


def test_the_first_batch_does_not_trust_the_ranks_alone():
    of = space()
    ranked = set(of.ranked(8))
    batches = [made("evolutionary", of, seed).propose(8) for seed in range(10)]
    assert all(set(batch) & ranked for batch in batches)
    assert 3 < sum(len(set(batch) - ranked) for batch in batches) < 40


def test_analytic_goes_by_the_estimates():
    of = space()
    assert made("analytic", of).propose(20) == of.ranked(20)


def test_a_space_that_is_not_listed_evolves_towards_what_was_measured():
    of = space()

    def score(points):
        """What a cost model would say once it has learned."""
        return [true_s(p.config) for p in points]

    strategy = Evolutionary(of, random.Random(0), score, Settings(population=32, listed=16))
    best = min(of.points(), key=lambda p: true_s(p.config))
    assert best in searched(strategy, of, 4)


def test_a_hint_is_looked_at_where_it_is_legal():
    of = space()
    far, illegal = (
        Point.of("tiled", {"tile_m": 128, "tile_n": 1, "block_k": 1}),
        Point.of("tiled", {"tile_m": 128, "tile_n": 128, "block_k": 1}),
    )
    settings = Settings(population=8, generations=0, listed=1, epsilon=0.0, first=0.0)
    strategy = Evolutionary(of, random.Random(0), lambda points: [0.0] * len(points), settings)
    strategy.hint([illegal, far])
    assert strategy.propose(1) == [far]


def test_an_unknown_strategy_is_named_with_the_known():
    with pytest.raises(UnknownStrategy, match="use one of evolutionary, analytic, random, exhaustive"):
        made("annealing", space())
