"""Searches are repeated with less memory until the compiled plan fits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.names import find_cluster
from shardc.cost.schedule_form import FORMS
from shardc.diagnostics.passes.pipeline import NoMicroBatches
from shardc.diagnostics.passes.search import NoPlanFound, NoPlanYet
from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.chosen import Chosen
from shardc.passes.search.clock import Clock
from shardc.passes.search.solver.solve import Solution
from shardc.planning.auto import fit
from shardc.planning.auto.choose import Around, Estimate
from shardc.planning.auto.space import Choice
from shardc.planning.candidates import Candidate

CHOICES = [Choice(1, 1, (("data", 8),)), Choice(1, 1, (("data", 8),), "full")]
NOT_COUNTED = 20e9


@dataclass(frozen=True)
class Priced:
    """A price of which a search did not count some bytes, and perhaps some seconds."""

    candidate: Candidate
    counted: float
    seconds: float

    def on(self, cluster: Cluster) -> Price:
        return Price(self, self.counted + NOT_COUNTED, *[cluster.devices[0].memory_bytes] * 2)


@dataclass(frozen=True)
class Time:
    seconds: float


@dataclass(frozen=True)
class Price:
    priced: Priced
    needed_bytes: float
    capacity_bytes: float
    searched_bytes: float

    @property
    def fits(self) -> bool:
        return self.needed_bytes <= self.capacity_bytes

    @property
    def time(self) -> Time:
        return Time(self.priced.seconds)

    @property
    def order(self) -> tuple[bool, float]:
        return not self.fits, self.needed_bytes


ESTIMATED_S = {"none": 1.0, "full": 1.3}


def picked(
    bytes_of: dict[str, float],
    cluster: Cluster,
    clock: Clock | None = None,
    room: float = 1.0,
) -> tuple[fit.Picked, list[float]]:
    rooms = []

    def find(candidate: Candidate, cutoff_s: float) -> Found | Unfit:
        rooms.append(candidate.room)
        held = bytes_of[candidate.recompute]
        seconds = ESTIMATED_S[candidate.recompute]
        if held > candidate.room * cluster.devices[0].memory_bytes:
            return Unfit(held / (candidate.room * cluster.devices[0].memory_bytes), 1.0)
        return Found(Chosen([], [], []), Solution([], seconds, seconds, ""), 0, held, 1.0)

    def price(candidate: Candidate) -> Priced:
        return Priced(candidate, bytes_of[candidate.recompute], ESTIMATED_S[candidate.recompute])

    return fit.search_to_fit(CHOICES, find, price, cluster, clock, room=room), rooms


def test_what_does_not_fit_when_compiled_is_searched_again() -> None:
    cluster = find_cluster("h100")
    found, rooms = picked({"none": 70e9, "full": 30e9}, cluster)
    assert found.priced.candidate.recompute == "full"
    assert rooms[0] == 1.0
    assert 0.7 < rooms[-1] < 1.0


def test_what_fits_is_picked_at_once() -> None:
    found, rooms = picked({"none": 40e9, "full": 30e9}, find_cluster("h100"))
    assert found.priced.candidate.recompute == "none"
    assert set(rooms) == {1.0}


def test_where_less_memory_has_no_plan_all_of_it_is_searched() -> None:
    found, rooms = picked({"none": 120e9, "full": 78e9}, find_cluster("h100"), room=0.9)
    assert found.priced.candidate.recompute == "full"
    assert [*dict.fromkeys(rooms)][:2] == [0.9, 1.0]


def test_only_choices_with_as_many_stages_get_less_memory() -> None:
    """The search of the choice with two stages did not count a fifth of what it needs."""
    cluster, rooms = find_cluster("h100"), defaultdict[int, list[float]](list)
    given = [Choice(1, 1, (("data", 8),)), Choice(2, 4, (("pipe", 2), ("data", 4)))]

    def find(candidate: Candidate, cutoff_s: float) -> Found | Unfit:
        stages = candidate.mesh.get("pipe", 1)
        rooms[stages].append(candidate.room)
        held, seconds = (60e9, 1.2) if stages == 1 else (70e9, 1.0)
        if held > candidate.room * cluster.devices[0].memory_bytes:
            return Unfit(1.1, 0.5)
        return Found(Chosen([], [], []), Solution([], seconds, seconds, ""), 0, held, 0.5)

    def price(candidate: Candidate) -> Priced:
        return Priced(candidate, 60e9 if "pipe" not in candidate.mesh else 70e9, 1.2)

    found = fit.search_to_fit(given, find, price, cluster, room=0.9)
    assert found.priced.candidate.mesh == {"data": 8}
    assert {*rooms[1]} == {0.9}
    assert min(rooms[2]) < 0.8


def test_what_a_device_needs_at_least_is_said() -> None:
    with pytest.raises(NoPlanFound, match=r"devices of 84.9 GB: any plan needs at least 90.0 GB"):
        picked({"none": 120e9, "full": 90e9}, find_cluster("h100"), room=0.9)


@pytest.mark.parametrize(
    ("compiled_s", "expected"),
    [
        ({"none": 1.5, "full": 1.4}, "full"),  # faster than the first one, when both are compiled
        ({"none": 1.5, "full": 1.6}, "none"),
        ({"none": 1.2, "full": 1.1}, "none"),  # its estimate is above the first one's price
    ],
)
def test_a_result_that_may_be_faster_than_the_first_is_compiled(
    compiled_s: dict[str, float], expected: str
) -> None:
    cluster = find_cluster("h100")
    around = Around([Estimate(c, ESTIMATED_S[c.recompute], 1.0, 1e9) for c in CHOICES], 1.0, 2, 2, "")

    def price(choice: Choice, room: float) -> Price:
        return Priced(choice.candidate, 1e9, compiled_s[choice.recompute]).on(cluster)

    found, best = fit._fastest(around, price(CHOICES[0], 1.0), price, Clock(), fit.Rooms(1.0), 1.0)
    assert found.found[0].choice.recompute == expected
    assert best.priced.candidate.recompute == expected


@pytest.mark.parametrize(("slower_s", "expected"), [(1.4, "full"), (1.6, "none")])
def test_a_faster_result_that_does_not_fit_gets_less_memory(slower_s: float, expected: str) -> None:
    """It fits with less, in which it takes ``slower_s``; the first result takes 1.5 s."""
    cluster, rooms = find_cluster("h100"), list[float]()
    around = Around([Estimate(c, ESTIMATED_S[c.recompute], 1.0, 70e9) for c in CHOICES], 1.0, 2, 2, "")

    def price(choice: Choice, room: float) -> Price:
        rooms.append(room)
        seconds = slower_s if room < 1 else 1.35
        return Priced(choice.candidate, min(70e9, room * 84.9e9), seconds).on(cluster)

    first = Priced(CHOICES[0].candidate, 1e9, 1.5).on(cluster)
    found, best = fit._fastest(around, first, price, Clock(), fit.Rooms(1.0), 1.0)
    assert rooms[0] == 1.0 and 0.7 < rooms[1] < 0.8
    assert best.fits and best.priced.candidate.recompute == expected
    assert found.found[0].choice.recompute == expected


def test_a_plan_that_lacks_memory_lowers_that_of_choices_like_it() -> None:
    """Other schedules of as many stages get less, too, until one of them lacks memory itself."""
    forms = FORMS[0], next(form for form in FORMS if form.is_split)
    plain, split = (Choice(4, 8, (("pipe", 4), ("data", 2)), form=form) for form in forms)
    first = fit.Rooms(0.9).lowered(split, 0.8)
    assert [first.of(choice) for choice in (plain, split, CHOICES[0])] == [0.8, 0.8, 0.9]
    second = first.lowered(split, 0.6)
    assert [second.of(choice) for choice in (plain, split)] == [0.8, 0.6]
    assert second.lowered(plain, 0.7).candidate(plain).room == 0.7


def test_when_the_clock_is_over_what_was_found_is_picked_or_its_lack_is_named() -> None:
    """The first choice does not fit when it is compiled, and there is no time for another search."""
    cluster, clock = find_cluster("h100"), Clock()
    clock.interrupt()
    found, rooms = picked({"none": 70e9, "full": 30e9}, cluster, clock)
    assert rooms == [1.0]
    assert found.priced.candidate.recompute == "none"
    assert (found.around.is_stopped, found.around.why) == (True, "interrupted")
    with pytest.raises(NoPlanYet, match="ended before it found a plan: interrupted"):
        picked({"none": 90e9, "full": 30e9}, cluster, clock)


def test_where_nothing_fits_the_memory_is_named() -> None:
    small = replace(
        find_cluster("h100"), devices=(replace(find_cluster("h100").devices[0], memory_bytes=1e9),)
    )
    with pytest.raises(NoPlanFound, match=r"8 devices of 1\.0 GB"):
        picked({"none": 40e9, "full": 30e9}, small)


def test_without_stages_if_no_pipeline_can_be_compiled() -> None:
    staged = Choice(2, 4, (("pipe", 2), ("data", 4)))
    seconds = {"pipeline*auto": 1.0, "auto": 2.0}
    priced = list[str]()

    def find(candidate: Candidate, cutoff_s: float) -> Found | Unfit:
        takes_s = seconds[candidate.plan]
        if takes_s >= cutoff_s:
            return Unfit(0.0, 0.5, takes_s)
        return Found(Chosen([], [], []), Solution([], takes_s, takes_s, ""), 0, 1e9, 0.5)

    def price(candidate: Candidate) -> Priced:
        priced.append(candidate.plan)
        if candidate.plan != "auto":
            raise NoMicroBatches()
        return Priced(candidate, 1e9, seconds[candidate.plan])

    def searched(given: list[Choice]) -> fit.Picked:
        return fit.search_to_fit(given, find, price, find_cluster("h100"))

    found = searched([staged, CHOICES[0]])
    assert found.priced.candidate.plan == "auto"
    assert priced == ["pipeline*auto", "auto"]
    with pytest.raises(NoMicroBatches):
        searched([staged])


@pytest.mark.parametrize("stages", [(2, 4, 8), (1,)], ids=["pipelines", "no stages"])
def test_pipelines_begin_to_be_priced_ahead(stages: Sequence[int]) -> None:
    meshes = [(("pipe", count), ("data", 2)) if count > 1 else (("data", 8),) for count in stages]
    given = [Choice(count, 64, mesh) for count, mesh in zip(stages, meshes, strict=True)]
    seconds = {choice.candidate.text: 1 + 0.01 * place for place, choice in enumerate(given)}
    begun, priced = list[list[Candidate]](), list[Candidate]()

    def find(candidate: Candidate, cutoff_s: float) -> Found | Unfit:
        takes_s = seconds[candidate.text]
        return Found(Chosen([], [], []), Solution([], takes_s, 0.5, ""), 0, 1e9, 0.5)

    def price(candidate: Candidate) -> Priced:
        priced.append(candidate)
        return Priced(candidate, 1e9, 2.0 + len(priced))

    def ahead(candidates: Sequence[Candidate]) -> None:
        begun.append([*candidates])

    found = fit.search_to_fit(given, find, price, find_cluster("h100"), ahead=ahead)
    asked = [choice.candidate for choice in given]
    assert found.priced.candidate == asked[0]
    assert priced == asked
    assert begun == ([] if stages == (1,) else [asked[:2], asked[1:], asked[2:]])


def test_what_evicts_activations_of_a_plan_that_fits_is_not_priced() -> None:
    first = Choice(4, 8, (("pipe", 4), ("data", 2)))
    evicting = replace(first, form=replace(first.form, balances=True))
    other = replace(first, recompute="full")

    def priced(*choices: Choice) -> list[Choice]:
        found, asked = [Estimate(choice, 1.0, 0.5, 1e9) for choice in choices], list[Choice]()

        def price(choice: Choice, room: float) -> Price:
            asked.append(choice)
            return Priced(choice.candidate, 1e9, 2.0).on(find_cluster("h100"))

        best = Priced(choices[0].candidate, 1e9, 2.0).on(find_cluster("h100"))
        fit._fastest(Around(found, 1.0, 3, 3, ""), best, price, Clock(), fit.Rooms(1.0), 1.0)
        return asked

    assert priced(first, evicting, other) == [other]
    assert priced(evicting, first, other) == [first, other]
