"""Stages of a chain: equal to exhaustive search on random chains."""

import itertools
import random
import sys
from dataclasses import dataclass
from math import inf
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "bench" / "peers"))
from chain_costs import Stage, step_s
from chain_cut import cut_chain

MESSAGES = ((1.0, 3.0), (2.0, 0.5))


@dataclass(frozen=True)
class Costs:
    """Random costs: ``work[kind][layer]``, bytes that every stage after a stage adds to, and two phases."""

    work: list[list[float]]
    held: list[float]
    memory: float
    ending: list[list[float]]
    stages: int
    kinds: list[tuple[int, ...]]
    pools: tuple[int, ...]

    @property
    def layers(self) -> int:
        return len(self.held)

    def fits(self, place: int, start: int, end: int, kind: int) -> bool:
        return sum(self.held[start:end]) * (self.stages - place) / (kind + 1) <= self.memory

    def least_s(self, start: int, end: int, kind: int) -> float:
        return sum(self.work[kind][start:end])

    def busy_s(self, stage: Stage) -> float:
        sent = MESSAGES[stage.before][stage.kind] if stage.before >= 0 else 0.0
        sent += MESSAGES[stage.kind][stage.after] if stage.after >= 0 else 0.0
        return self.least_s(stage.start, stage.end, stage.kind) + sent

    def ends_s(self, start: int, end: int, kind: int) -> tuple[float, ...]:
        return self.ending[kind][start], sum(self.ending[kind][start:end])


def _random(seed: int) -> Costs:
    of = random.Random(seed)
    layers, stages = of.randint(2, 7), of.randint(1, 4)

    def times(scale: float) -> list[float]:
        return [of.choice((0.0, 1.0, of.uniform(0.5, 4))) * scale for _ in range(layers)]

    held = [of.uniform(0.5, 2) for _ in range(layers)]
    memory = of.choice((1.0, 2.0, 4.0, 100.0)) * max(held)
    kinds = of.choice(([(1,), (2,)], [(1, 0), (0, 1)], [(1, 0), (1, 1)]))
    pools = tuple(of.randint(1, 6) for _ in kinds[0])
    work, ending = [times(1.0), times(0.6)], [times(0.5), times(0.9)]
    return Costs(work, held, memory, ending, stages, kinds, pools)


def _exhaustive(costs: Costs, micro_batches: int) -> float:
    best, layers = inf, costs.layers
    for inner in itertools.combinations(range(1, layers), costs.stages - 1):
        ends = (*inner, layers)
        starts = (0, *inner)
        for kinds in itertools.product(range(2), repeat=costs.stages):
            used = [sum(costs.kinds[kind][pool] for kind in kinds) for pool in range(len(costs.pools))]
            has_devices = all(a <= b for a, b in zip(used, costs.pools, strict=True))
            stages = enumerate(zip(starts, ends, kinds, strict=True))
            if has_devices and all(costs.fits(place, *stage) for place, stage in stages):
                best = min(best, step_s(costs, micro_batches, ends, kinds))
    return best


@pytest.mark.parametrize("seed", range(300))
def test_it_equals_exhaustive_search(seed: int) -> None:
    costs, micro_batches = _random(seed), 1 + seed % 5
    found, best = cut_chain(costs, costs.stages, micro_batches), _exhaustive(costs, micro_batches)
    if found is None:
        assert best == inf
        return
    assert found.seconds == pytest.approx(best, rel=1e-12)
    assert found.seconds == step_s(costs, micro_batches, found.ends, found.kinds)


def test_some_random_chains_have_no_cut_and_most_have_one() -> None:
    found = [cut_chain(costs, costs.stages, 2) for costs in map(_random, range(300))]
    assert 20 < found.count(None) < 150


def test_a_cutoff_hides_only_cuts_that_do_not_beat_it() -> None:
    found = ((costs, cut_chain(costs, costs.stages, 2)) for costs in map(_random, range(300)))
    costs, best = next((costs, best) for costs, best in found if best is not None and len(best.ends) > 2)
    assert cut_chain(costs, costs.stages, 2, best.seconds) is None
    assert cut_chain(costs, costs.stages, 2, best.seconds * 1.001) == best


def test_unequal_layers_get_uneven_stages() -> None:
    work = [4.0, 1.0, 1.0, 1.0, 1.0]
    costs = Costs([work], [1.0] * 5, 100.0, [[0.0] * 5], 2, [(1,)], (2,))
    found = cut_chain(costs, 2, 8)
    assert found is not None
    assert found.ends == (1, 5)


def test_more_stages_than_layers_are_no_cut() -> None:
    costs = _random(1)
    assert cut_chain(costs, costs.layers + 1, 4) is None
