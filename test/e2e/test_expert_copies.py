"""Experts that all devices have copies of: equal to one device in f64, with less to send."""

from __future__ import annotations

from functools import cache
from math import ceil

import pytest
import torch
from expert_layers import CHOSEN, EXPERTS, INNER, LAYERS, MESHES, TOKENS, TRAINING, WIDTH, moved
from training import Captured, Ranks, capture, check_equal, train_eagerly

from shardc.diagnostics.passes.experts import AllExpertsCopied, CopiesNothing, NoSuchCopy
from shardc.dialects.aten.types import read_type
from shardc.options.experts import CopiedExperts, Experts
from shardc.passes.manager.program import program_blocks
from shardc.runtime.errors import ExpertOverflow
from shardc.step.shard import Compiled

HOT: CopiedExperts = (("*.0", (0,)), ("*.1", (1,)))
"""The experts that most rows choose: another in each layer."""
ALL_MESHES = {**MESHES, "expert of 2": ({"expert": 2}, 1)}


@cache
def _captured() -> Captured:
    return capture(TRAINING)


@cache
def _compiled(plan: str, experts: Experts) -> Compiled:
    mesh, micro_batches = ALL_MESHES[plan]
    return _captured().compile(mesh, plan.split(" ")[0], micro_batches, experts=experts)


def _check(plan: str, experts: Experts) -> None:
    check_equal(_captured(), _compiled(plan, experts), TRAINING, train_eagerly(TRAINING, 2))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("plan", ALL_MESHES)
def test_copies_equal_one_device(plan: str) -> None:
    _check(plan, Experts(copies=HOT))


@pytest.mark.parametrize("experts", [Experts(chunks=2, copies=HOT), Experts(group=2, copies=HOT)])
def test_copies_go_with_chunks_and_groups(experts: Experts) -> None:
    _check("expert", experts)


@pytest.mark.parametrize("plan", ["expert", "zero2*expert"])
def test_several_copies_of_all_layers(plan: str) -> None:
    _check(plan, Experts(copies=(("*", (0, 1, 3)),)))


def test_an_exchange_has_the_room_of_the_experts_that_are_left() -> None:
    """A capacity is of equal shares of the rows that are not of copies: 3 of 4 experts send 3/4 of them."""
    ways, capacity = 4, 1.25
    sent = TOKENS * CHOSEN / ways * (EXPERTS - 1) / EXPERTS
    slots = ways * ceil(capacity * sent / ways)
    assert slots == 8 < TOKENS * CHOSEN / ways * capacity
    compiled = _compiled("expert", Experts(capacity, copies=HOT))
    assert moved(compiled.rank_module) == {
        ('["expert"]', 8 * slots * WIDTH): 4 * LAYERS,
        ('["expert"]', 8 * slots): LAYERS,
    }
    _check("expert", Experts(capacity, copies=HOT))


def test_work_is_shared_out() -> None:
    """Rows that stay are computed where they are, and nowhere else."""
    plain, copied = (_compiled("expert", experts).work.share for experts in (Experts(), Experts(copies=HOT)))
    assert copied == pytest.approx(plain)
    assert 1 / 4 <= copied <= 1.1 / 4


def test_without_copies_it_overflows() -> None:
    with pytest.raises(ExpertOverflow):
        _check("expert", Experts(1.25))


def test_copies_are_summed_once_each_way() -> None:
    """For each parameter the copy's matrix is an all-reduce in forward, and its gradient one in backward."""
    sizes = {8 * WIDTH * INNER: 2, 8 * INNER: 1}
    found: dict[int, int] = {}
    for block in program_blocks(_compiled("expert", Experts(copies=HOT)).rank_module):
        for op in (o.operation for o in block.operations):
            type_ = read_type(op.operands[0].type) if op.name == "dist.all_reduce" else None
            if type_ is not None and len(type_.shape) == 3:
                found[type_.size_bytes] = found.get(type_.size_bytes, 0) + 1
    assert found == {size: 2 * LAYERS * count for size, count in sizes.items()}


def test_rows_that_stay_need_no_room() -> None:
    """A step that runs again where rows have no room counts those that are sent alone."""
    compiled = _compiled("expert", Experts(1.25, "rerun", copies=HOT))
    ranks = Ranks(_captured(), compiled.program)
    made, _ = ranks.train(TRAINING.batches(1))
    assert int(made[0]["overflow", "experts"]) == 0
    assert torch.isfinite(made[0]["loss", "loss"])


def test_copies_that_cannot_be() -> None:
    with pytest.raises(NoSuchCopy, match=r"expert 4, but 'up.0' has 4 experts(?s:.)*experts from 0 to 3"):
        _compiled("expert", Experts(copies=(("up.0", (0, 4)),)))
    with pytest.raises(AllExpertsCopied, match=r"all 4 experts of 'up.0'"):
        _compiled("expert", Experts(copies=(("*", (0, 1)), ("up.0", (2, 3)))))
    with pytest.raises(CopiesNothing, match=r"'layers.*'(?s:.)*up.0"):
        _compiled("expert", Experts(copies=(("layers.*", (0,)),)))


def test_a_batch_that_is_whole_on_the_axis_has_no_copies() -> None:
    plan = {"up.*": ["expert", None, None], "down.*": ["expert", None, None]}
    compiled = _captured().compile({"expert": 4}, plan, experts=Experts(copies=HOT))
    assert [r.name for r in compiled.remarks if r.name == "NotCopied"]
