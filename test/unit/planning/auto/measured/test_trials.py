"""Trials of close plans: which plans are tried, and which one is chosen by its measured steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

import shardc
from shardc.compiler.local_cluster import cluster_of
from shardc.cost.cluster.cluster import Cluster
from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.passes.search import NothingSearched, NoTrials
from shardc.planning.auto.measured import trials
from shardc.planning.auto.measured.close import CLOSE, close_plans
from shardc.planning.auto.measured.trials import Subject, measured, trials_asked
from shardc.planning.auto.search import SearchedPlan


def searched(cluster: str | Cluster = "cpu-4") -> SearchedPlan:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    batch = (torch.randn(64, 64),)
    return shardc.search_plan(model, optimizer, batch, loss=lambda y, _: y.square().mean(), cluster=cluster)


def test_close_plans_start_with_the_pick_and_differ_in_their_mesh() -> None:
    found = searched()
    plans = close_plans(found.searches, found.answer, count=5)
    assert plans[0].candidate == found.candidate
    assert 1 < len(plans) <= 5
    assert all(plan.seconds <= CLOSE * found.seconds for plan in plans)
    assert len({plan.candidate.text for plan in plans}) == len(plans)
    others = close_plans(found.searches, found.answer, count=64)[1:]
    assert others[0].candidate.plan == "data", "what users would run without a search"
    assert all(plan.seconds >= others[1].seconds for plan in others[2:])
    assert any("auto" not in plan.candidate.plan for plan in plans), "presets are among them"


def test_plans_that_are_tried_fit_into_memory_together() -> None:
    found = searched()
    plans = close_plans(found.searches, found.answer, count=5)
    needed = sum(plan.held_bytes for plan in plans[:2])
    given = cluster_of("cpu-4")
    devices = tuple(replace(device, memory_bytes=needed) for device in given.devices)
    found.searches.cluster = replace(given, devices=devices)
    assert close_plans(found.searches, found.answer, count=5)[0] == plans[0]
    assert len(close_plans(found.searches, found.answer, count=5)) == 2


def test_the_fastest_measured_plan_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    takes_s, ran = {0: 3.0, 1: 1.0, 2: 1.1}, list[int]()

    def seconds(step: Callable[[], object]) -> float:
        step()
        return takes_s[ran[-1]]

    monkeypatch.setattr(trials, "_seconds", seconds)
    monkeypatch.setattr(trials, "LIMIT_S", 1e3)
    steps = {number: (lambda number=number: ran.append(number)) for number in takes_s}
    assert list(measured(steps).items()) == [(1, 1.0), (2, 1.1), (0, 3.0)]
    assert ran.count(0) == trials.WARM + trials.FIRST, "a slow plan is dropped"
    assert ran.count(1) == ran.count(2) == trials.WARM + trials.TURNS
    ran.clear()
    monkeypatch.setattr(trials, "LIMIT_S", 1.0)
    measured(steps)
    assert ran.count(0) == ran.count(1) == trials.WARM + 1, "long steps end the trials"


def subject(model: nn.Module) -> Subject:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Subject(model, optimizer, (torch.randn(4, 8),), lambda y, _: y.sum(), None)


class Locked(nn.Linear):
    """A module that cannot be copied."""

    def __deepcopy__(self, memo: object) -> nn.Module:
        raise TypeError("cannot pickle a lock")


@pytest.mark.parametrize(
    ("model", "rank", "problem"),
    [
        (nn.Linear(8, 8), None, "there are no other processes"),
        (nn.Linear(8, 8, device="meta"), "0", "the model has no values"),
        (Locked(8, 8), "0", r"cannot be copied \(cannot pickle a lock\)"),
    ],
)
def test_what_cannot_be_tried(
    model: nn.Module, rank: str | None, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    with pytest.raises(NoTrials, match=problem):
        trials_asked(subject(model), {"search_trials": 3})
    assert trials_asked(subject(model), {}) == 0
    assert trials_asked(subject(model), {"search_trials": 1}) == 0


def test_processes_of_this_machine_try_plans_unless_a_cluster_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    model = nn.Linear(8, 8)
    assert trials_asked(subject(model), {}) == trials.TRIALS
    assert trials_asked(subject(model), {"cluster": "h100-2"}) == 0
    assert trials_asked(subject(model), {"cluster": "h100-2", "search_trials": 3}) == 3


def test_trials_need_a_search_without_a_mesh() -> None:
    model = nn.Linear(8, 8)
    optimizer, batch = torch.optim.SGD(model.parameters(), lr=0.1), (torch.randn(4, 8),)
    with pytest.raises(NoTrials, match="the mesh is given"):
        shardc.compile_step(model, optimizer, batch, mesh={"data": 2}, plan="auto", search_trials=3)
    with pytest.raises(NothingSearched, match="search_trials applies to a search"):
        shardc.compile_step(model, optimizer, batch, mesh={"data": 2}, plan="data", search_trials=3)
    with pytest.raises(BadArgument, match="search_trials"):
        shardc.compile_step(model, optimizer, batch, plan="auto", cluster="h100-2", search_trials=0)
