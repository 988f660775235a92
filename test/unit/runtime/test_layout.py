"""Which part of a tensor belongs to which rank, axes of time included."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from shardc.runtime.comm.connect import connect
from shardc.runtime.comm.layout import Interleaved, Leaf, cut, with_padding
from shardc.runtime.comm.mesh import Mesh
from shardc.runtime.errors import StateMismatch
from shardc.runtime.state import State

MESH = Mesh((("data", 2), ("tensor", 2)), (("micro", 3),))
DATA, TENSOR, MICRO = ("data", 1, 2), ("tensor", 1, 2), ("micro", 1, 3)
X = torch.arange(24 * 4).view(24, 4)


@pytest.mark.parametrize("rank", range(4))
def test_cut(rank: int) -> None:
    data, tensor = divmod(rank, 2)
    assert torch.equal(cut(X, ((DATA,), (TENSOR,)), MESH, rank), X.chunk(2)[data].chunk(2, 1)[tensor])
    assert torch.equal(cut(X, ((TENSOR, DATA), ()), MESH, rank), X.chunk(4)[tensor * 2 + data])
    assert torch.equal(cut(X, ((DATA, MICRO), ()), MESH, rank), X.chunk(2)[data])
    micro_first = torch.cat([part.chunk(2)[data] for part in X.chunk(3)])
    assert torch.equal(cut(X, ((MICRO, DATA), ()), MESH, rank), micro_first)


@pytest.mark.parametrize("rank", range(4))
def test_slices_agree_with_cut(rank: int) -> None:
    for dims in (((DATA,), (TENSOR,)), ((TENSOR, DATA), ()), ((DATA, MICRO), ()), ((), ())):
        leaf = Leaf("x", "param", (24, 4), torch.int64, dims)
        block = X[leaf.slices(MESH, rank)]
        assert block.shape == leaf.local_shape(MESH)
        assert torch.equal(block, cut(X, dims, MESH, rank))


def test_cut_of_whole_memory_is_a_view() -> None:
    assert cut(X, ((DATA,), ()), MESH, 1).data_ptr() == X.data_ptr()


def test_a_dim_that_does_not_divide_is_refused() -> None:
    mesh = Mesh((("data", 1),))
    uneven = Leaf("w", "param", (3,), torch.float32, ((("data", 1, 2),),))
    with pytest.raises(StateMismatch, match="dim 0 of param 'w' has size 3, which 2 ranks do not divide"):
        State([uneven], mesh, connect(mesh, "cpu"))


def test_a_padded_block_holds_what_chunk_gives() -> None:
    leaf = Leaf("x", "param", (5, 3), torch.float32, ((DATA, TENSOR), ()), padded=(8, 3))
    value = torch.arange(15).view(5, 3)
    chunks = [*value.chunk(4), value[:0]]  # 2, 2 and 1 rows: torch gives no fourth
    for rank in range(4):
        assert leaf.local_shape(MESH) == (2, 3)
        assert torch.equal(value[leaf.slices(MESH, rank)], chunks[rank])
        assert leaf.held_shape(MESH, rank) == chunks[rank].shape
        block = cut(with_padding(value, leaf.padded), leaf.dims, MESH, rank)
        assert torch.equal(block, with_padding(chunks[rank], (2, 3)))
    assert leaf.is_chunked(MESH)


def test_whole_heads_are_no_chunks() -> None:
    """24 rows of 3 heads: 16 and 8, where ``torch.chunk`` gives 12 and 12. Whole, they are neither."""
    leaf = Leaf("x", "param", (24,), torch.float32, ((TENSOR,),), padded=(32,))
    assert [leaf.held_shape(MESH, rank) for rank in (0, 1)] == [(16,), (8,)]
    assert not leaf.is_chunked(MESH)
    assert replace(leaf, dims=((),)).is_chunked(MESH)


QKV = Interleaved(0, 2, (8, 4, 4))
"""Queries 0 to 7, keys 8 to 11, values 12 to 15: first stored are 0 to 3, 8, 9, 12 and 13."""
STORED = [0, 1, 2, 3, 8, 9, 12, 13, 4, 5, 6, 7, 10, 11, 14, 15]


@pytest.mark.parametrize("axes", [(TENSOR,), (TENSOR, DATA), ()])
@pytest.mark.parametrize("rank", range(4))
def test_blocks_of_parts(axes: tuple, rank: int) -> None:
    """Each block joined of its parts is what a cut of the stored tensor gives, also where parts are cut
    again.
    """
    leaf = Leaf("x", "param", (16, 3), torch.int64, (axes, ()), interleaved=QKV)
    value = torch.arange(48).view(16, 3)
    stored = value[STORED]
    blocks = [value[block] for block in leaf.blocks(MESH, rank)]
    assert torch.equal(torch.cat(blocks), cut(stored, leaf.dims, MESH, rank))
    assert torch.equal(QKV.restored(stored), value)
    assert not leaf.is_chunked(MESH)


def test_parts_of_the_manifest() -> None:
    entry = {
        "name": "x",
        "role": "param",
        "shape": [16, 3],
        "dtype": "int64",
        "sharding": {"dims": [[["tensor", 1, 2]], []]},
    }
    assert Leaf.read({**entry, "interleaved": {"dim": 0, "ways": 2, "sizes": [8, 4, 4]}}).interleaved == QKV
    assert Leaf.read(entry).interleaved is None


def test_padding_and_parts() -> None:
    """The parts of a dim, and padding of another."""
    leaf = Leaf("x", "param", (16, 3), torch.int64, ((TENSOR,), (DATA,)), padded=(16, 4), interleaved=QKV)
    value = torch.arange(48).view(16, 3)
    for rank in range(4):
        held = torch.cat([value[block] for block in leaf.blocks(MESH, rank)])
        assert held.shape == leaf.held_shape(MESH, rank)
        expected = cut(with_padding(value[STORED], leaf.padded), leaf.dims, MESH, rank)
        assert torch.equal(with_padding(held, leaf.local_shape(MESH)), expected)
