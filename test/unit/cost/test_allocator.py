"""Simulation of PyTorch's caching allocator: rounding, growth, splitting, merging and reuse of blocks."""

from __future__ import annotations

import pytest

from shardc.cost.allocator import CachingAllocator, reserved_bytes

MB = 1 << 20


@pytest.mark.parametrize(
    ("size_bytes", "reserved"),
    [(1, 2 * MB), (MB, 2 * MB), (MB + 1, 20 * MB), (20 * MB, 20 * MB), (21 * MB, 40 * MB)],
)
def test_granules_of_one_block(size_bytes: int, reserved: int) -> None:
    memory = CachingAllocator()
    memory.allocate(size_bytes)
    assert memory.reserved_bytes == reserved


def test_small_blocks_share_a_granule() -> None:
    memory = CachingAllocator()
    for _ in range(2 * MB // 512):
        memory.allocate(1)
    assert memory.reserved_bytes == 2 * MB
    memory.allocate(1)
    assert memory.reserved_bytes == 4 * MB


def test_free_neighbours_become_one() -> None:
    memory = CachingAllocator()
    first, second, third = (memory.allocate(20 * MB) for _ in range(3))
    for block in (first, third, second):
        memory.free(block)
    assert memory.allocate(60 * MB).address == 0
    assert memory.reserved_bytes == 60 * MB


def test_a_block_in_use_parts_free_ones() -> None:
    memory = CachingAllocator()
    first, _, third, _ = (memory.allocate(20 * MB) for _ in range(4))
    memory.free(first)
    memory.free(third)
    memory.allocate(40 * MB)
    assert memory.reserved_bytes == 120 * MB


def test_the_free_end_grows() -> None:
    memory = CachingAllocator()
    memory.allocate(20 * MB)
    memory.free(memory.allocate(20 * MB))
    assert memory.allocate(60 * MB).address == 20 * MB
    assert memory.reserved_bytes == 80 * MB


def test_the_smallest_that_is_large_enough_is_taken_and_the_end_last() -> None:
    memory = CachingAllocator()
    large, _, small, _, end = (memory.allocate(size * MB) for size in (40, 2, 30, 2, 26))
    for block in (large, small, end):
        memory.free(block)
    assert memory.allocate(26 * MB).address == small.address
    assert memory.allocate(26 * MB).address == large.address
    assert memory.allocate(26 * MB).address == end.address
    assert memory.reserved_bytes == 100 * MB


def test_a_program_meets_what_its_last_run_left() -> None:
    requests = [(0, 20 * MB), (1, 20 * MB), (2, 20 * MB), (1, -20 * MB), (3, 40 * MB), (3, -1), (2, -1)]
    assert reserved_bytes(requests, given=1) == 100 * MB
    # what lives until after the step parts the memory of the next one
    kept = [(0, 20 * MB), (1, 40 * MB), (2, 20 * MB), (1, -40 * MB)]
    assert reserved_bytes([*kept, (3, 20 * MB), (4, 60 * MB)], given=1, rounds=1) == 140 * MB
    # what fits exactly has no slack, however often it runs
    assert reserved_bytes([(0, 20 * MB), (1, 40 * MB), (1, -40 * MB)], given=1, rounds=5) == 60 * MB


def test_new_state_takes_the_place_of_old_state() -> None:
    old = [(0, 20 * MB), (1, 20 * MB), (2, 20 * MB)]
    # each argument is freed as soon as its new value is there; at the end of the log all is
    update = [(3, 20 * MB), (0, -20 * MB), (4, 20 * MB), (1, -20 * MB), (5, 20 * MB), (2, -20 * MB)]
    ended = [(block, -20 * MB) for block in (3, 4, 5)]
    assert reserved_bytes([*old, *update, *ended], given=3, rounds=5) == 80 * MB
    kept = [*update[:-1], *((block, -20 * MB) for block in (2, 3, 4, 5))]
    assert reserved_bytes([*old, *kept], given=3, rounds=5) == 80 * MB
