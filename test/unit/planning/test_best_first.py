"""Plans that cannot be the best get no price; the best is that of all prices."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import cast

import pytest

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.passes.search import NoPlanFound
from shardc.planning.best_first import Prices, best_first
from shardc.planning.bounds.bound import Bound
from shardc.planning.candidates import Candidate
from shardc.planning.price import Price

CAPACITY = 80.0


@dataclass(frozen=True)
class Known:
    """Stands in for a price, and for its time."""

    name: str
    needed_bytes: float
    seconds: float

    @property
    def time(self) -> Known:
        return self

    @property
    def fits(self) -> bool:
        return self.needed_bytes <= CAPACITY

    @property
    def order(self) -> tuple[bool, float]:
        return not self.fits, self.seconds if self.fits else self.needed_bytes


def search(plans: list[tuple[Known, Bound]], closer: dict[str, Bound] | None = None) -> Prices:
    by_name = {known.name: known for known, _ in plans}
    given = [(Candidate({}, known.name), bound) for known, bound in plans]
    price = lambda candidate: cast(Price, by_name[candidate.plan])  # noqa: E731
    return best_first(given, CAPACITY, price, lambda candidate: (closer or {}).get(candidate.plan))


def test_the_best_is_that_of_all_plans() -> None:
    draw, left_out, compiled = Random(0), 0, [0, 0]
    for _ in range(300):
        plans: list[tuple[Known, Bound]] = []
        closer: dict[str, Bound] = {}
        for number in range(draw.randint(1, 8)):
            known = Known(str(number), draw.uniform(20, 200), draw.random())
            size, seconds = known.needed_bytes * draw.random(), known.seconds * draw.random()
            plans.append((known, Bound(size, seconds, size * draw.random())))
            share = draw.random()
            size, seconds = (w + share * (v - w) for v, w in ((known.needed_bytes, size), (known.seconds, 0)))
            closer[known.name] = Bound(size, seconds)
        best = min((known for known, _ in plans), key=lambda known: known.order)
        for place, found in enumerate((search(plans), search(plans, closer))):
            left_out += len(found.left_out)
            compiled[place] += len(found.priced)
            assert len(found.priced) + len(found.left_out) == len(plans)
            if not found.is_hopeless:
                assert min(cast(list[Known], found.priced), key=lambda known: known.order) == best
    assert left_out and compiled[1] < compiled[0]


def test_where_no_state_fits_one_plan_is_compiled() -> None:
    bounds = [Bound(size, 1.0, size) for size in (90, 85, 120)]
    found = search([*zip((Known("a", 200, 1), Known("b", 300, 1), Known("c", 250, 1)), bounds, strict=True)])
    assert found.is_hopeless and [known.name for known in cast(list[Known], found.priced)] == ["b"]
    assert [bound.needed_bytes for _, bound in found.left_out] == [90, 120]


def test_where_activations_do_not_fit_the_least_memory_is_found() -> None:
    bounds = [Bound(size, 1.0, 10) for size in (90, 85, 120, 220)]
    needed = zip("abcd", (200, 300, 150, 230), strict=True)
    found = search(
        [(Known(name, size, 1), bound) for (name, size), bound in zip(needed, bounds, strict=True)]
    )
    assert [known.name for known in cast(list[Known], found.priced)] == ["b", "a", "c"]
    assert not found.is_hopeless


def test_of_equal_bounds_less_memory_is_first() -> None:
    found = search([(Known("a", 70, 2), Bound(60, 1.0)), (Known("b", 70, 1), Bound(50, 1.0))])
    assert [known.name for known in cast(list[Known], found.priced)] == ["b", "a"]


def test_what_cannot_be_made_is_refused_unless_nothing_can() -> None:
    def price(candidate: Candidate) -> Price:
        if candidate.plan != "good":
            raise NoPlanFound(devices=1, memory="1 B", least="")
        return cast(Price, Known("good", 1, 1))

    found = best_first([(Candidate({}, "bad"), Bound(0)), (Candidate({}, "good"), Bound(0))], CAPACITY, price)
    assert [candidate.plan for candidate, _ in found.refused] == ["bad"] and len(found.priced) == 1
    with pytest.raises(ShardcError):
        best_first([(Candidate({}, "bad"), Bound(0))], CAPACITY, price)


def test_ctrl_c_leaves_the_plans_so_far() -> None:
    def price(candidate: Candidate) -> Price:
        if candidate.plan == "2":
            raise KeyboardInterrupt
        return cast(Price, Known(candidate.plan, 1, 1))

    given = [(Candidate({}, str(number)), Bound(0)) for number in range(4)]
    found = best_first(given, CAPACITY, price)
    assert found.is_stopped and len(found.priced) == 2
    assert [candidate.plan for candidate, _ in found.left_out] == ["2", "3"]
    with pytest.raises(KeyboardInterrupt):
        best_first(given[2:], CAPACITY, price)


def test_no_plans_have_no_prices() -> None:
    assert not search([]).priced
