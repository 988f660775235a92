"""Rows that travel in chunks, and by groups of devices: equal to one device in f64, by as many bytes as the
formula says."""

from __future__ import annotations

from functools import cache

import pytest
from expert_layers import CHOSEN, LAYERS, MESHES, TOKENS, TRAINING, WIDTH, moved
from training import Captured, capture, check_equal, train_eagerly

from shardc.diagnostics.passes.plan import ExpertGroups
from shardc.options.experts import Experts
from shardc.step.shard import Compiled


@cache
def _captured() -> Captured:
    return capture(TRAINING)


@cache
def _compiled(plan: str, experts: Experts) -> Compiled:
    mesh, micro_batches = MESHES[plan]
    return _captured().compile(mesh, plan, micro_batches, experts=experts)


def _check(plan: str, experts: Experts) -> None:
    check_equal(_captured(), _compiled(plan, experts), TRAINING, train_eagerly(TRAINING, 2))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("chunks", [2, 3])
@pytest.mark.parametrize("plan", [plan for plan in MESHES if plan != "data*expert"])
def test_chunks_equal_one_device(plan: str, chunks: int) -> None:
    """Also where chunks do not divide the rows of a block: the room is rounded up."""
    _check(plan, Experts(chunks=chunks))


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_chunks_send_as_many_bytes(chunks: int) -> None:
    """Each layer's four exchanges of rows in as many parts; one of the experts' numbers."""
    slots = TOKENS * CHOSEN
    assert moved(_compiled("expert", Experts(chunks=chunks)).rank_module) == {
        ('["expert"]', 8 * slots * WIDTH // chunks): 4 * LAYERS * chunks,
        ('["expert"]', 8 * slots): LAYERS,
    }


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("plan", ["expert", "data*expert"])
def test_groups_equal_one_device(plan: str, chunks: int) -> None:
    _check(plan, Experts(chunks=chunks, group=2))


def test_groups_trade_within_them_and_then_between() -> None:
    """Of two groups of two, each exchange is two: to the device of the same place in the own group, of all
    rows for its place in any group; then one message to the other group.
    """
    slots = TOKENS * CHOSEN
    within, between = (f'[#dist.axis<"expert", {pre} : i64, 2 : i64>]' for pre in (2, 1))
    assert moved(_compiled("expert", Experts(group=2)).rank_module) == {
        (within, 8 * slots * WIDTH): 4 * LAYERS,
        (between, 8 * slots * WIDTH): 4 * LAYERS,
        (within, 8 * slots): LAYERS,
        (between, 8 * slots): LAYERS,
    }


def test_a_group_as_large_as_the_axis_needs_one_exchange() -> None:
    each = [moved(_compiled("expert", Experts(group=group)).rank_module) for group in (None, 4, 8)]
    assert each[0] == each[1] == each[2]


def test_groups_that_do_not_divide_the_axis() -> None:
    with pytest.raises(ExpertGroups, match=r"expert_group=3 .* expert=4(?s:.)*expert_group=2"):
        _compiled("expert", Experts(group=3))


def test_experts_over_axes_that_do_not_cut_the_batch_have_no_groups() -> None:
    plan = {"up.*": ["expert", None, None], "down.*": ["expert", None, None]}
    compiled = _captured().compile({"expert": 4}, plan, experts=Experts(group=2))
    assert [r.name for r in compiled.remarks if r.name == "NotGrouped"]
