"""Simulation of PyTorch's caching allocator: rounding, splitting, merging and reuse of blocks."""

from __future__ import annotations

import pytest

from shardc.cost.allocator import CachingAllocator, reserved_bytes

MB = 1 << 20


@pytest.mark.parametrize(
    ("size_bytes", "reserved"),
    [(1, 2 * MB), (MB, 2 * MB), (MB + 1, 20 * MB), (10 * MB, 10 * MB), (11 * MB, 12 * MB)],
)
def test_segments_of_one_block(size_bytes: int, reserved: int) -> None:
    memory = CachingAllocator()
    memory.allocate(size_bytes)
    assert memory.reserved_bytes == reserved


def test_small_blocks_share_a_segment() -> None:
    memory = CachingAllocator()
    for _ in range(2 * MB // 512):
        memory.allocate(1)
    assert memory.reserved_bytes == 2 * MB
    memory.allocate(1)
    assert memory.reserved_bytes == 4 * MB


def test_free_neighbours_become_one() -> None:
    memory = CachingAllocator()
    first, second, third = (memory.allocate(6 * MB) for _ in range(3))
    assert memory.reserved_bytes == 20 * MB
    for block in (first, third, second):
        memory.free(block)
    memory.allocate(20 * MB)
    assert memory.reserved_bytes == 20 * MB


def test_a_block_in_use_parts_a_segment() -> None:
    memory = CachingAllocator()
    first, _, third = (memory.allocate(6 * MB) for _ in range(3))
    memory.free(first)
    memory.free(third)
    memory.allocate(12 * MB)
    assert memory.reserved_bytes == 32 * MB


def test_the_smallest_that_is_large_enough_is_taken() -> None:
    memory = CachingAllocator()
    large, small = memory.allocate(40 * MB), memory.allocate(30 * MB)
    memory.free(large)
    memory.free(small)
    assert memory.allocate(30 * MB) is small and memory.allocate(40 * MB) is large


def test_a_program_meets_what_its_last_run_left() -> None:
    requests = [(0, 10 * MB), (1, 16 * MB), (2, 16 * MB), (1, -16 * MB), (3, 32 * MB), (2, -1), (3, -1)]
    assert reserved_bytes(requests, given=1) == (10 + 16 + 16 + 32) * MB
    # what fits exactly has no slack, however often it runs
    assert reserved_bytes([(0, 10 * MB), (1, 16 * MB), (1, -16 * MB)], given=1, rounds=5) == 26 * MB
