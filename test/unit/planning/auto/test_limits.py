"""Limits of searches: meshes keep to them, and options that leave no choice are named."""

from __future__ import annotations

from math import prod

import pytest
import torch
from torch import nn

import shardc
from shardc.cost.cluster.names import find_cluster
from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.passes.search import ContradictingLimits, NothingSearched, NotSearched
from shardc.planning.auto.limits import Fixed, contradiction
from shardc.planning.auto.search import SearchedPlan
from shardc.planning.auto.searches import Searches
from shardc.planning.auto.space import choices
from shardc.planning.candidates import PIPE
from shardc.planning.pricer import Pricer


@pytest.mark.parametrize("most", [1, 2, 4, 8, 12, 64])
def test_axes_beyond_the_limit_shard_the_batch(most: int) -> None:
    given = list(choices(find_cluster("h100-8x8"), samples=64, layers=8))
    for choice in given:
        found = Fixed(tensor=most).within(choice, samples=64)
        inside = choice.mesh | {PIPE: 1}
        if found is None:
            assert 64 // choice.micro_batches < prod(inside.values()) // most * 2
            continue
        free = {axis: size for axis, size in found.mesh.items() if axis not in (PIPE, "batch")}
        assert prod(free.values()) <= most or found == choice
        assert prod(found.mesh.values()) == prod(choice.mesh.values()), "all devices are used"
        assert next(axis for axis in found.mesh if axis != PIPE) == "batch" or found == choice
    assert any(Fixed(tensor=most).within(choice, samples=64) for choice in given)


def test_stages_are_limited() -> None:
    given = list(choices(find_cluster("h100-8x8"), samples=64, layers=8))
    left = [choice for choice in given if Fixed(stages=2).within(choice, samples=64)]
    assert {choice.stages for choice in left} == {1, 2}


def test_the_smallest_contradiction_is_found() -> None:
    given = ["a", "b", "c", "d"]
    assert contradiction(given, lambda of: not {"b", "d"} <= {*of}) == ("b", "d")
    assert contradiction(given, lambda of: "c" not in of) == ("c",)
    assert contradiction(given, lambda of: len(of) < 4) == ("a", "b", "c", "d")


def searched(**options: object) -> SearchedPlan:
    """A search for few samples and wide layers, which are best sharded by features."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch, loss = (torch.randn(4, 512),), lambda y, _: y.square().mean()
    return shardc.search_plan(model, optimizer, batch, loss=loss, cluster="h100-2x2", **options)


def rows_of_products(found: SearchedPlan) -> set[int]:
    """The rows that a device's products of the forward have."""
    pricer: Pricer = found.searches.pricer
    items = pricer.price(found.candidate).step.ranks[0][0].items
    return {item.product.m for item in items if item.product and item.phase == "forward"}


def test_a_search_keeps_to_its_limits() -> None:
    free, limited = searched(), searched(search_limits={"tensor": 1, "stages": 1})
    assert rows_of_products(free) == {4}, "free searches shard features of so few samples"
    assert limited.candidate.mesh == {"batch": 4}
    assert rows_of_products(limited) == {1}
    assert limited.seconds >= free.seconds
    assert limited.around.bound_s >= free.around.bound_s * (1 - 1e-9)


def test_a_limited_plan_trains_as_one_device_does() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step = shardc.compile_step(
        model,
        optimizer,
        (torch.randn(8, 16),),
        loss=lambda y, _: y.square().mean(),
        plan="auto",
        cluster="h100-2x2",
        search_limits={"tensor": 2, "stages": 1},
        fuse=False,
    )
    assert [(axis.name, axis.size) for axis in step.compiled.mesh.axes] == [("batch", 2), ("nvlink", 2)]
    assert step.check().passed


def test_options_that_leave_no_choice_are_named() -> None:
    limits = {"tensor": 1, "stages": 1}
    both = r"micro_batches 2 and search_limits of tensor 1 and search_limits of stages 1\n"
    with pytest.raises(ContradictingLimits, match=both):
        searched(micro_batches=2, recompute="none", search_limits=limits)
    with pytest.raises(ContradictingLimits, match=r"has schedule zb-h1 and search_limits of stages 1\n"):
        Searches(found_pricer(), find_cluster("h100-2x2"), 4, search_limits=limits, schedule="zb-h1")


def found_pricer() -> Pricer:
    return searched(search_limits={"stages": 1}).searches.pricer


def test_wrong_limits_are_refused() -> None:
    for limits in ({}, {"tensor": 0}, {"pipeline": 2}, {"tensor": "8"}, 8):
        with pytest.raises(BadArgument, match="search_limits is"):
            searched(search_limits=limits)
    model = nn.Linear(8, 8)
    optimizer, batch = torch.optim.SGD(model.parameters(), lr=0.1), (torch.randn(4, 8),)
    given = {"mesh": {"data": 2}, "search_limits": {"tensor": 1}}
    with pytest.raises(NotSearched, match="does not support search_limits beside a mesh"):
        shardc.compile_step(model, optimizer, batch, plan="auto", cluster="h100-2", **given)
    with pytest.raises(NothingSearched, match="the plan is data"):
        shardc.compile_step(model, optimizer, batch, plan="data", **given)
