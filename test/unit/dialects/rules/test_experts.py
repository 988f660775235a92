"""Rules of experts, proved by running ranks' parts."""

from __future__ import annotations

import pytest
import torch

import shardc.runtime.operators.copies
import shardc.runtime.operators.dispatch
import shardc.runtime.operators.experts  # noqa: F401  (defines the operators)
from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove
from shardc.runtime.errors import ExpertOverflow, NoSuchExpert

ROWS, EXPERTS, K, N = 24, 6, 4, 8
X, Y, W = sample(ROWS, K), sample(ROWS, N, seed=3), sample(EXPERTS, K, N, seed=5)


def _ids(count: int) -> torch.Tensor:
    """Some rows have no expert, and one expert has no row."""
    ids = torch.randint(-1, count, (ROWS,), generator=torch.Generator().manual_seed(0))
    return ids.where(ids != 1, 0)


@pytest.mark.parametrize("ways", [1, 2, 3])
def test_products(ways: int) -> None:
    proof = prove("shardc.expert_mm", (X, W, _ids(EXPERTS // ways), ways, 0.5), ways=(2, 3))
    rows, experts = ("m", "e") if ways == 1 else ("(n m)", "(n e)")
    assert str(proof.rule) == f"([{rows},k],[{experts},k,j],[{rows}])->([{rows},j]) reduce={{e,k}}"
    assert not proof.unreached


@pytest.mark.parametrize("ways", [1, 2, 3])
def test_gradients_of_matrices(ways: int) -> None:
    proof = prove("shardc.expert_outer", (X, Y, _ids(EXPERTS // ways), EXPERTS, ways, 0.5), ways=(2, 3))
    assert str(proof.rule).endswith("reduce={m}")
    assert not proof.unreached


@pytest.mark.parametrize(("ways", "room"), [(1, 6), (2, 6), (6, 6), (6, 5)])
def test_blocks_of_rows_are_dispatched_apart(ways: int, room: int) -> None:
    ids = torch.randint(0, EXPERTS, (ROWS,), generator=torch.Generator().manual_seed(0))
    proof = prove("shardc.dispatch", (X, ids, EXPERTS, ways, 4, room), ways=(2,))
    assert str(proof.rule) == "([(b r),h],[(b r)])->([n,b,c,h]) replicate={r,n,c}"
    prove("shardc.dispatch_ids", (ids, EXPERTS, ways, 4, room), ways=(2,))
    buffer = torch.ops.shardc.dispatch(X, ids, EXPERTS, ways, 4, room)
    prove("shardc.collect", (buffer, ids, EXPERTS), ways=(2,))
    assert torch.equal(torch.ops.shardc.collect(buffer, ids, EXPERTS), X)


@pytest.mark.parametrize("ways", [2, 3])
def test_dispatched_products_are_those_of_the_rows(ways: int) -> None:
    ids = torch.randint(0, EXPERTS, (ROWS,), generator=torch.Generator().manual_seed(0))
    ops = torch.ops.shardc
    rows = ops.dispatch(X, ids, EXPERTS, ways, 4, 6).flatten(0, 2)
    own = ops.dispatch_ids(ids, EXPERTS, ways, 4, 6).flatten()
    made = ops.expert_mm(rows, W, own, ways, 0.5).view(ways, 4, -1, N)
    expected = torch.einsum("sk,skn->sn", X, W[ids])
    torch.testing.assert_close(ops.collect(made, ids, EXPERTS), expected)
    torch.testing.assert_close(ops.expert_mm(X, W, ids, 1, 0.5), expected)
    sums = torch.zeros_like(W).index_add(0, ids, X[:, :, None] * Y[:, None])
    torch.testing.assert_close(ops.expert_outer(X, Y, ids, EXPERTS, 1, 0.5), sums)
    y = ops.dispatch(Y, ids, EXPERTS, ways, 4, 6).flatten(0, 2)
    torch.testing.assert_close(ops.expert_outer(rows, y, own, EXPERTS, ways, 0.5), sums)


def test_no_row_is_dropped() -> None:
    ids = torch.tensor([0, 0, 0, 1] * 2)
    with pytest.raises(ExpertOverflow, match="3 of a device's rows go to experts that have room for 2"):
        torch.ops.shardc.dispatch(sample(8, 4), ids, 2, 2, 2, 2)


def test_indices_of_experts_are_cut_as_rows() -> None:
    ids = torch.randint(0, EXPERTS, (ROWS,), generator=torch.Generator().manual_seed(0))
    proof = prove("shardc.expert_ids", (ids, EXPERTS), ways=(2, 3))
    assert str(proof.rule) == "([m])->([m])"
    assert not proof.unreached
    assert torch.equal(torch.ops.shardc.expert_ids(ids, EXPERTS), ids)
    assert torch.ops.shardc.expert_ids(ids[:0], EXPERTS).shape == (0,)


@pytest.mark.parametrize("index", [-1, EXPERTS, 2**40])
def test_an_index_of_no_expert(index: int) -> None:
    with pytest.raises(NoSuchExpert, match=f"expert {index}, but there are 6(?s:.)*experts are 0 to 5"):
        torch.ops.shardc.expert_ids(torch.tensor([0, 5, index]), EXPERTS)


@pytest.mark.parametrize("ways", [1, 2, 6])
def test_rows_beyond_the_room_are_counted(ways: int) -> None:
    ids = torch.randint(0, EXPERTS, (ROWS,), generator=torch.Generator().manual_seed(0))
    proof = prove("shardc.beyond_room", (ids, EXPERTS, ways, 4, 2), ways=(2,))
    assert str(proof.rule) == "([(b r)])->([b]) replicate={r}"
    blocks = (ids // (EXPERTS // ways)).view(4, -1).tolist()
    wanted = [sum(max(block.count(way) - 2, 0) for way in range(ways)) for block in blocks]
    assert torch.ops.shardc.beyond_room(ids, EXPERTS, ways, 4, 2).tolist() == wanted


def test_rows_that_are_dropped_stay_within_the_buffer() -> None:
    ids = torch.tensor([0, 0, 0, 1] * 2)
    x = sample(8, 4)
    sent = torch.ops.shardc.dispatch(x, ids, 2, 2, 2, 2, True)
    own = torch.ops.shardc.dispatch_ids(ids, 2, 2, 2, 2, True)
    assert torch.equal(own, torch.tensor([[[0, 0], [0, 0]], [[0, -1], [0, -1]]]))
    back = torch.ops.shardc.collect(sent, ids, 2, True)
    kept = [0, 3, 4, 7]
    assert torch.equal(back[kept], x[kept]) and back.isfinite().all()


@pytest.mark.parametrize("room", [6, 3])
def test_rows_of_no_expert_stay(room: int) -> None:
    ids = torch.arange(ROWS) % EXPERTS
    ids[ids > 2] = -1
    prove("shardc.dispatch", (X, ids, EXPERTS, 3, 4, room), ways=(2,))
    prove("shardc.dispatch_ids", (ids, EXPERTS, 3, 4, room), ways=(2,))
    buffer = torch.ops.shardc.dispatch(X, ids, EXPERTS, 3, 4, room)
    own = torch.ops.shardc.dispatch_ids(ids, EXPERTS, 3, 4, room)
    assert (own >= 0).sum() == (ids >= 0).sum() == buffer.any(-1).sum()
    back = torch.ops.shardc.collect(buffer, ids, EXPERTS)
    assert torch.equal(back[ids >= 0], X[ids >= 0]) and back.isfinite().all()
    assert torch.ops.shardc.beyond_room(ids, EXPERTS, 3, 4, 1).tolist() == [1, 1, 1, 1]


COPIED = (4, 1)


def test_rows_of_copies_are_numbered() -> None:
    ids = torch.randint(0, EXPERTS, (ROWS,), generator=torch.Generator().manual_seed(0))
    proof = prove("shardc.copied_ids", (ids, COPIED), ways=(2, 3))
    assert str(proof.rule) == "([m])->([m])" and not proof.unreached
    wanted = [COPIED.index(expert) if expert in COPIED else -1 for expert in ids.tolist()]
    assert torch.ops.shardc.copied_ids(ids, COPIED).tolist() == wanted


def test_copies_of_matrices_and_back() -> None:
    picked = prove("shardc.pick_experts", (W, COPIED, 0), ways=(2, 3))
    assert str(picked.rule) == "([e,k,j])->([c,k,j]) reduce={e} replicate={c}"
    copies = torch.ops.shardc.pick_experts(W, COPIED, 0)
    assert torch.equal(copies, W[list(COPIED)])
    placed = prove("shardc.place_experts", (copies, COPIED, 0, EXPERTS), ways=(2, 3))
    assert str(placed.rule) == "([c,k,j])->([e,k,j]) replicate={c}"
    assert not picked.unreached and not placed.unreached
    wanted = torch.zeros_like(W)
    wanted[list(COPIED)] = copies
    assert torch.equal(torch.ops.shardc.place_experts(copies, COPIED, 0, EXPERTS), wanted)
