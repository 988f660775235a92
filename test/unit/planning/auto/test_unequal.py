"""Searches on devices of several kinds: shares, stages in proportion, bounds, memory, and proofs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from unequal_steps import Net, loss, mixed, presets, searched

import shardc
from shardc.planning.auto.unequal import shares_for, thin
from shardc.planning.candidates import Candidate

PAIRS = [
    (mixed(1, 1), (1024, 4, 16)),
    (mixed(1, 1), (512, 8, 64)),
    (mixed(1, 1), (1024, 6, 48)),
    (mixed(1, 1, link_bytes_s=300e9), (1024, 4, 16)),
    (mixed(1, 1, link_bytes_s=300e9), (512, 8, 64)),
    (mixed(1, 1, link_bytes_s=300e9), (1024, 6, 48)),
    (mixed(1, 1, 2), (1024, 4, 16)),
    (mixed(1, 1, 2), (512, 8, 64)),
    (mixed(1, 1, 2), (2048, 4, 32)),
    (mixed(2, 2), (1024, 4, 16)),
    (mixed(2, 2), (512, 8, 64)),
    (mixed(1, 2, archs=("sm_100", "sm_90"), link_bytes_s=1e11), (512, 8, 64)),
    (mixed(2, 1), (1024, 4, 16)),
]
FEW = (0, 6)
"""Pairs that are tried in each run of the tests."""
SLOWER = {7: 1.015}
"""Pairs whose pick is counted faster than a preset, but priced slower, by a factor of at most so much."""


@pytest.mark.parametrize(
    ("number"), [pytest.param(n, marks=[] if n in FEW else pytest.mark.slow) for n in range(len(PAIRS))]
)
def test_no_preset_is_faster_and_none_is_below_the_bound(number: int) -> None:
    cluster, sizes = PAIRS[number]
    found = searched(cluster, *sizes)
    prices = list(presets(found.searches.pricer, cluster))
    least_s = min(price.time.seconds for price in prices if price.fits)
    assert found.seconds <= SLOWER.get(number, 1.0) * least_s
    assert found.around.bound_s <= min(found.seconds, *(price.time.seconds for price in prices))
    assert found.options.keys() & {"shares", "speeds"}
    assert ("shares" if "shares" in found.options else "speeds") in str(found)


@pytest.mark.parametrize("number", [0, 3])
def test_searched_choices_are_priced_above_their_bounds(number: int) -> None:
    cluster, sizes = PAIRS[number]
    found = searched(cluster, *sizes)
    priced = [(found.searches.pricer.price(of.choice.candidate).on(cluster), of) for of in found.around.found]
    assert any(of.choice.speeds for _, of in priced)
    assert all(of.bound_s <= price.time.seconds for price, of in priced)


def test_shares_are_estimated_on_the_slowest_place() -> None:
    cluster = mixed(1, 1)
    pricer = searched(cluster, 512, 4, 64).searches.pricer
    for shares in ((3, 1), (13, 3), (1, 3)):
        candidate = Candidate({"net": 2}, "auto", recompute="none", shares={"net": shares})
        estimate, price = pricer.found(candidate).solution, pricer.price(candidate).on(cluster)
        assert price.time.seconds == pytest.approx(estimate.seconds, rel=0.12)
        assert price.time.seconds == max(price.time.places.values())
        assert estimate.bound_s <= price.time.seconds


def test_each_stage_has_the_memory_of_its_device() -> None:
    cluster = mixed(1, 1)
    pricer = searched(cluster, 512, 4, 64).searches.pricer
    candidate = Candidate({"pipe": 2, "data": 1}, "pipeline*auto", 4, "none", speeds=(3.0, 1.0))
    priced = pricer.price(candidate)
    fast, slow = (rank.peak_bytes for rank in priced.memory)
    assert fast > slow
    small, large = cluster.devices[1], cluster.devices[0]
    between = replace(cluster, devices=(large, replace(small, memory_bytes=(fast + slow) / 2)))
    assert priced.on(between).fits and priced.on(between).fullest.rank == 1
    swapped = replace(cluster, devices=(replace(large, memory_bytes=(fast + slow) / 2), small))
    assert not priced.on(swapped).fits and priced.on(swapped).fullest.rank == 0


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [mixed(1, 1, 2, link_bytes_s=1e9), mixed(1, 1, link_bytes_s=300e9)])
@pytest.mark.parametrize("rows", [8, 16])
def test_what_is_found_is_right(cluster: object, rows: int) -> None:
    torch.manual_seed(0)
    model = Net(32, 4).double()
    optimizer, batch = torch.optim.AdamW(model.parameters()), (torch.randn(rows, 4, 32).double(),)
    found = shardc.search_plan(model, optimizer, batch, cluster=cluster, loss=loss)  # pyright: ignore[reportArgumentType]
    step = shardc.compile_step(model, optimizer, batch, loss=loss, fuse=False, **found.options)
    assert step.check().passed


@pytest.mark.parametrize(
    ("mesh", "options"),
    [
        ({"data": 2}, {"shares": {"data": [3, 1]}}),
        ({"data": 2, "tensor": 2}, {"shares": {"data": [3, 1]}, "micro_batches": 2}),
        ({"pipe": 2, "data": 2}, {"speeds": [3, 1], "micro_batches": 4}),
    ],
)
def test_searched_plans_of_unequal_parts_are_right(mesh: dict[str, int], options: dict[str, object]) -> None:
    torch.manual_seed(0)
    model = Net(16, 4).double()
    optimizer, batch = torch.optim.AdamW(model.parameters()), (torch.randn(16, 4, 16).double(),)
    plan = "pipeline*auto" if "pipe" in mesh else "auto"
    cluster = mixed(1, 1, 2) if len(mesh) == 2 else mixed(1, 1)
    given = {"mesh": mesh, "plan": plan, "cluster": cluster, "fuse": False, **options}
    step = shardc.compile_step(model, optimizer, batch, loss=loss, **given)  # pyright: ignore[reportArgumentType]
    assert step.check().passed


def test_shares_follow_speeds_and_divide_the_batch() -> None:
    assert shares_for([3.2, 1.0], 16)[-1] == (3, 1)
    assert shares_for([3.2, 3.2, 1.0, 1.0], 32)[-1] == (3, 3, 1, 1)
    assert shares_for([1.0, 1.0], 16) == []
    assert shares_for([3.0, 1.0], 2) == []  # a row each


def test_stages_end_where_few_bytes_cross() -> None:
    assert thin([(0.0, 0.0), (0.25, 8.0), (0.5, 2.0), (0.75, 2.1), (1.0, 0.0)]) == [0.5, 0.75]
