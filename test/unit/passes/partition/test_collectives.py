"""Collectives on simulated ranks: cutting up and putting together, and the errors."""

from __future__ import annotations

import pytest
import torch

from shardc.backends.eager import collectives
from shardc.diagnostics.dialects.sharding import ReplicasDiffer
from shardc.dialects.dist.mesh import Mesh, MeshAxis
from shardc.dialects.dist.sharding import Sharding

MESH = Mesh((MeshAxis("x", 2), MeshAxis("y", 2)))
X, Y = MESH.whole("x"), MESH.whole("y")
RANKS = [torch.full((2, 2), float(rank)) for rank in range(4)]


def test_groups_stand_in_the_order_of_their_index() -> None:
    """Over (y, x) the ranks of the square are 0, 2, 1, 3."""
    gathered = collectives.all_gather(RANKS, MESH, 0, (Y, X))
    assert gathered[3][::2, 0].tolist() == [0, 2, 1, 3]
    assert collectives.all_gather(RANKS, MESH, 0, (Y,))[2][::2, 0].tolist() == [2, 3]


@pytest.mark.parametrize(("reduction", "expected"), [("sum", 6), ("max", 3), ("min", 0)])
def test_all_reduce(reduction: str, expected: int) -> None:
    reduced = collectives.all_reduce(RANKS, MESH, (X, Y), reduction)
    assert all(torch.equal(value, torch.full((2, 2), float(expected))) for value in reduced)


def test_broadcast_takes_the_root_of_each_group() -> None:
    assert [v[0, 0].item() for v in collectives.broadcast(RANKS, MESH, (X,), 1)] == [2, 3, 2, 3]


def test_terms_of_a_whole_value_add_up_to_it() -> None:
    terms = collectives.to_partial([RANKS[1]] * 4, MESH, (X,))
    assert [t[0, 0].item() for t in terms] == [1, 1, 0, 0]
    assert torch.equal(collectives.all_reduce(terms, MESH, (X,), "sum")[3], RANKS[1])


def test_dims_that_do_not_divide_are_padded_and_cut_off_again() -> None:
    whole = torch.arange(15.0).reshape(3, 5)
    sharding = Sharding(((X, Y), ()))
    blocks = collectives.scatter(whole, sharding, MESH)
    assert [tuple(b.shape) for b in blocks] == [(1, 5)] * 4
    assert not blocks[3].any()
    assert torch.equal(collectives.gather(blocks, sharding, MESH, (3, 5)), whole)


@pytest.mark.parametrize("reduction", ["sum", "max", "min"])
def test_partial_terms_round_trip(reduction: str) -> None:
    whole = torch.arange(-8.0, 8.0).reshape(4, 4)
    sharding = Sharding(((X,), ())).with_partial(((reduction, Y),))
    blocks = collectives.scatter(whole, sharding, MESH)
    assert torch.equal(collectives.gather(blocks, sharding, MESH, (4, 4)), whole)


def test_replicas_that_differ_are_named() -> None:
    blocks = [torch.zeros(2, 2) for _ in range(4)]
    blocks[2][0, 1] = 0.5
    with pytest.raises(ReplicasDiffer, match=r"ranks 0 and 2 .* differ in 1 of 4 elements, by up to 0\.5"):
        collectives.gather(blocks, Sharding(((), (Y,))), MESH, (2, 4))


def test_replicas_with_equal_nans_agree() -> None:
    blocks = [torch.tensor([float("nan"), 1.0]) for _ in range(4)]
    assert collectives.gather(blocks, Sharding(((),)), MESH, (2,))[1] == 1


def test_blocks_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match=r"dim 0 of shape \[2, 2\] does not divide into 4"):
        collectives.reduce_scatter(RANKS, MESH, 0, (X, Y), "sum")
