"""The pool of large tensors: no two tensors share memory, memory of dead ones is used again,
in any order and thread.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
import torch

from shardc.runtime.kernels import pool
from shardc.runtime.kernels.pool import ALIGNMENT_BYTES, POOLED_BYTES, SEGMENT_BYTES, Pool


def spans(tensors: list[torch.Tensor]) -> list[tuple[int, int]]:
    return sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors)


def make(count: int) -> torch.Tensor:
    return pool.contiguous((count,), torch.float32)


def test_memory_of_a_dead_tensor_is_used_again():
    first = make(POOLED_BYTES)
    address = first.data_ptr()
    view = first[10:]
    del first
    second = make(POOLED_BYTES)
    assert second.data_ptr() != address  # a view is alive
    del view
    assert make(POOLED_BYTES).data_ptr() == address


def test_small_tensors_come_from_malloc():
    used = pool.statistics()["used_bytes"]
    small = pool.contiguous((3, 4), torch.bfloat16)
    assert small.shape == (3, 4) and pool.statistics()["used_bytes"] == used


def test_a_pooled_tensor_is_like_any_other():
    made = pool.contiguous((256, 1024), torch.float32)
    assert made.is_contiguous() and made.data_ptr() % ALIGNMENT_BYTES == 0 and not made._is_view()
    made.copy_(torch.arange(256 * 1024).view(256, 1024))
    leaf = made.requires_grad_()
    (leaf * 2).sum().backward()
    assert torch.equal(leaf.grad, torch.full_like(leaf, 2.0))
    with pytest.raises(RuntimeError, match="not resizable"):
        pool.contiguous((POOLED_BYTES,), torch.float32).resize_(2 * POOLED_BYTES)


def test_live_tensors_never_overlap():
    choices = random.Random(0)
    alive: list[tuple[torch.Tensor, float]] = []
    for number in range(300):
        if alive and choices.random() < 0.5:
            tensor, value = alive.pop(choices.randrange(len(alive)))
            assert bool((tensor == value).all())
            del tensor
        made = make(choices.choice([1 << 15, 1 << 16, 3 << 15, 50_000, 1 << 18]))
        made.fill_(number)
        alive.append((made, float(number)))
        found = spans([t for t, _ in alive])
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(found))
    assert all(bool((t == value).all()) for t, value in alive)


def test_neighbours_become_one_and_mapped_memory_stays_within_what_was_in_use():
    own = Pool()
    size = SEGMENT_BYTES // 4
    blocks = [own.take(size) for _ in range(4)]
    assert own.mapped_bytes == SEGMENT_BYTES == own.used_bytes
    for block in blocks:
        own.bin(size).append(block)
    assert own.used_bytes == 0
    whole = own.take(SEGMENT_BYTES)
    assert own.mapped_bytes == SEGMENT_BYTES and whole == min(blocks)
    own.bin(SEGMENT_BYTES).append(whole)
    own.take(2 * SEGMENT_BYTES)  # the free segment is too small: it goes
    assert own.mapped_bytes == 2 * SEGMENT_BYTES and own.peak_bytes == 2 * SEGMENT_BYTES
    assert own.release() == 0


def test_release_gives_back_what_no_tensor_is_in():
    pool.release()
    before = pool.statistics()["mapped_bytes"]
    large = make(SEGMENT_BYTES)  # four segments' worth
    assert pool.statistics()["mapped_bytes"] == before + 4 * SEGMENT_BYTES
    assert pool.release() == 0
    del large
    assert pool.release() == 4 * SEGMENT_BYTES and pool.statistics()["mapped_bytes"] == before


def test_many_threads(in_four_threads: Callable[..., None]) -> None:
    def work(number: int) -> None:
        for turn in range(200):
            made = [make((1 << 15) * (1 + (number + turn + i) % 3)) for i in range(3)]
            for tensor in made:
                tensor.fill_(number)
            assert all(bool((tensor == number).all()) for tensor in made), turn

    in_four_threads(work)


def test_trim_clears_what_no_tensor_is_in_and_keeps_tensors():
    kept = pool.contiguous((1 << 18,), torch.float32).fill_(3.0)
    pool.contiguous((1 << 18,), torch.float32).fill_(4.0)
    mapped = pool.statistics()["mapped_bytes"]
    pool.trim()
    assert kept.eq(3.0).all() and pool.statistics()["mapped_bytes"] == mapped
    assert pool.contiguous((1 << 18,), torch.float32).fill_(5.0).eq(5.0).all()
