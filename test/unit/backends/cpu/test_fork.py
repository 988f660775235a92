"""Kernels in forked children: their threads, their memory, and compiling there."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable

import pytest
import torch
from bodies import compiled
from programs import layer_norm_backward, softmax

from shardc.runtime.kernels import pool

SHAPE = (64, 512)


def in_child(work: Callable[[], None]) -> None:
    """Runs ``work`` in a forked child, which has 20 s; raises what it ended with."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, "the child hung" if status == -signal.SIGALRM else f"the child ended with {status}"


def team_softmax() -> Callable[..., tuple[torch.Tensor, ...]]:
    body = softmax(*SHAPE)
    body.config = "work_per_thread = 1000 : i64"
    return compiled(body)


def test_a_child_of_a_process_whose_threads_ran_a_kernel(threads):
    kernel, x = team_softmax(), torch.randn(SHAPE)
    expected = kernel(x)[0]

    def work() -> None:
        for _ in range(3):
            assert torch.equal(kernel(x)[0], expected)
        in_child(lambda: torch.testing.assert_close(kernel(x)[0], expected, rtol=0, atol=0))

    in_child(work)
    assert torch.equal(kernel(x)[0], expected)


def test_each_process_writes_into_its_own_memory():
    """Results of the pool, from before the fork and after it."""
    before = pool.contiguous((pool.POOLED_BYTES,), torch.float32).fill_(1)

    def work() -> None:
        before.fill_(2)
        pool.contiguous((pool.POOLED_BYTES,), torch.float32).fill_(3)

    after = pool.contiguous((pool.POOLED_BYTES,), torch.float32).fill_(4)
    del after  # its memory is the next that either takes
    in_child(work)
    after = pool.contiguous((pool.POOLED_BYTES,), torch.float32)
    assert bool((before == 1).all()) and bool((after == 4).all())


def test_a_child_compiles(tmp_path, monkeypatch):
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    shape = (33, 20)
    inputs = [torch.randn(s) for s in (shape, shape, shape[:1], shape[:1], shape[1:])]

    def work() -> None:
        for result in compiled(layer_norm_backward(*shape))(*inputs):
            assert bool(result.isfinite().all())

    in_child(work)
    assert len(list(tmp_path.glob("*.so"))) == 1


class Softmaxes(torch.utils.data.Dataset):
    """Computes its items by a kernel that the parent has used with a team."""

    def __init__(self, kernel: Callable[..., tuple[torch.Tensor, ...]], x: torch.Tensor) -> None:
        self.kernel, self.x = kernel, x

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> torch.Tensor:
        return self.kernel(self.x + number)[0]


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_workers_of_a_data_loader(threads):
    kernel, x = team_softmax(), torch.randn(SHAPE)
    expected = [kernel(x + number)[0] for number in range(4)]
    loader = torch.utils.data.DataLoader(
        Softmaxes(kernel, x), batch_size=None, num_workers=1, multiprocessing_context="fork", timeout=20
    )
    for found, wanted in zip(loader, expected, strict=True):
        assert torch.equal(found, wanted)
