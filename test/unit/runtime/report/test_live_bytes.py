"""The bytes that live: of PyTorch's allocator and of the pool, at once."""

import torch

from shardc.runtime.kernels import pool
from shardc.runtime.report.live_bytes import LiveBytes

MIB = 1 << 20
SLACK = 1 << 12
"""Bytes of the tests' own small tensors."""


def plain(mib: int) -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8)


def pooled(mib: int) -> torch.Tensor:
    return pool.contiguous((mib * MIB,), torch.uint8)


def test_both_count_together_and_not_what_was_there_before():
    live, old = LiveBytes(), [plain(8), pooled(8)]
    live.start()
    live.sample()
    for make in (plain, pooled):
        live.sample()
        old.append(make(4))
        live.sample()
    live.stop()
    assert 0 <= live.peak_bytes - 8 * MIB < SLACK and live.peak_call == 1


def test_what_the_pool_got_back_before_a_call_does_not_live_in_it():
    live = LiveBytes()
    live.start()
    live.sample()
    live.sample()
    first = pooled(8)
    live.sample()
    del first
    live.sample()
    second = plain(6)
    live.sample()
    live.stop()
    del second
    assert 0 <= live.peak_bytes - 8 * MIB < SLACK and live.peak_call == 0


def test_memory_that_was_taken_under_the_profiler_is_given_back():
    live = LiveBytes()
    live.start()
    state = plain(16)
    live.sample()
    for _ in range(3):
        live.sample()
        state = plain(16)
        live.sample()
    live.stop()
    assert 0 <= live.peak_bytes - 16 * MIB < SLACK
    assert state.numel()
