"""Networks without nodes that have at most two neighbours."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import inf

import numpy as np
import pytest

from shardc.passes.search.solver.network import answer
from shardc.passes.search.solver.question import Network, Question
from shardc.passes.search.solver.reduced import Reduced


def seconds(network: Network, chosen: tuple[int, ...]) -> float:
    alone = sum(float(costs[state]) for costs, state in zip(network.costs, chosen, strict=True))
    return alone + sum(float(of[chosen[a], chosen[b]]) for (a, b), of in network.edges.items())


def drawn(seed: int) -> Network:
    """Return a network of seven nodes with one to three states, and few or most of all edges."""
    draw = np.random.default_rng(seed)
    sizes, part = [int(size) for size in draw.integers(1, 4, 7)], draw.uniform(0.2, 0.9)
    pairs = [pair for pair in product(range(7), repeat=2) if pair[0] < pair[1] and draw.random() < part]
    return Network(
        [draw.random(n) for n in sizes], {(a, b): draw.random((sizes[a], sizes[b])) for a, b in pairs}
    )


@pytest.mark.parametrize("seed", range(60))
def test_the_cheapest_choice_is_that_of_the_whole(seed: int) -> None:
    network = drawn(seed)
    reduced = Reduced.of(network)
    left = reduced.network
    assert all(len(costs) > 1 for costs in left.costs)
    near = Counter(node for edge in left.edges for node in edge)
    assert all(near[node] > 2 for node in range(len(left.costs)))
    every = product(*(range(len(costs)) for costs in network.costs))
    least, best = min((seconds(network, chosen), chosen) for chosen in every)
    found = answer(Question(network, 10.0))
    assert found.chosen is not None and tuple(found.chosen) == best
    assert found.bound_s <= least + 1e-9
    of_left = tuple(best[node] for node in reduced.nodes)
    assert seconds(left, of_left) + reduced.least_s == pytest.approx(least)


def test_many_networks_are_left_and_many_are_not() -> None:
    left = [len(Reduced.of(drawn(seed)).nodes) for seed in range(60)]
    assert 10 < sum(map(bool, left)) < 50


def test_what_is_impossible_is_known_without_a_search() -> None:
    edge = {(0, 1): np.array([[inf, inf, inf]])}
    for network in (Network([np.array([inf])], {}), Network([np.zeros(1), np.zeros(3)], edge)):
        assert not Reduced.of(network).is_possible
        assert answer(Question(network, 10.0)).chosen is None
        assert answer(Question(network, 10.0)).bound_s == inf
