"""Plans that cannot be the best get no price; the best is that of all prices."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import cast

import pytest

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.passes.search import NoPlanFound
from shardc.planning.best_first import Prices, best_first
from shardc.planning.candidates import Candidate
from shardc.planning.price import Price

CAPACITY = 80.0


@dataclass(frozen=True)
class Known:
    """Stands in for a price."""

    name: str
    needed_bytes: float
    seconds: float

    @property
    def order(self) -> tuple[bool, float]:
        fits = self.needed_bytes <= CAPACITY
        return not fits, self.seconds if fits else self.needed_bytes


def search(plans: list[tuple[Known, float]]) -> Prices:
    by_name = {known.name: known for known, _ in plans}
    given = [(Candidate({}, known.name), least) for known, least in plans]
    return best_first(given, CAPACITY, lambda candidate: cast(Price, by_name[candidate.plan]))


def test_the_best_is_that_of_all_plans() -> None:
    draw, left_out = Random(0), 0
    for _ in range(300):
        plans: list[tuple[Known, float]] = []
        for number in range(draw.randint(1, 8)):
            needed = draw.uniform(20, 200)
            plans.append((Known(str(number), needed, draw.random()), needed * draw.random()))
        found = search(plans)
        left_out += len(found.left_out)
        assert len(found.priced) + len(found.left_out) == len(plans)
        if not found.is_hopeless:
            best = min((known for known, _ in plans), key=lambda known: known.order)
            assert min(cast(list[Known], found.priced), key=lambda known: known.order) == best
    assert left_out


def test_where_nothing_fits_one_plan_is_compiled() -> None:
    found = search([(Known("a", 200, 1), 90), (Known("b", 300, 1), 85), (Known("c", 250, 1), 120)])
    assert found.is_hopeless and [known.name for known in cast(list[Known], found.priced)] == ["b"]
    assert [size for _, size in found.left_out] == [90, 120]


def test_what_cannot_be_made_is_refused_unless_nothing_can() -> None:
    def price(candidate: Candidate) -> Price:
        if candidate.plan != "good":
            raise NoPlanFound(devices=1, memory="1 B")
        return cast(Price, Known("good", 1, 1))

    found = best_first([(Candidate({}, "bad"), 0), (Candidate({}, "good"), 0)], CAPACITY, price)
    assert [candidate.plan for candidate, _ in found.refused] == ["bad"] and len(found.priced) == 1
    with pytest.raises(ShardcError):
        best_first([(Candidate({}, "bad"), 0)], CAPACITY, price)


def test_ctrl_c_leaves_the_plans_so_far() -> None:
    def price(candidate: Candidate) -> Price:
        if candidate.plan == "2":
            raise KeyboardInterrupt
        return cast(Price, Known(candidate.plan, 1, 1))

    given = [(Candidate({}, str(number)), 0.0) for number in range(4)]
    found = best_first(given, CAPACITY, price)
    assert found.is_stopped and len(found.priced) == 2
    assert [candidate.plan for candidate, _ in found.left_out] == ["2", "3"]
    with pytest.raises(KeyboardInterrupt):
        best_first(given[2:], CAPACITY, price)
