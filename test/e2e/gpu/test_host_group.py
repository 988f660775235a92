"""Collectives of ranks that share a GPU: on copies of the host's, which come back when they are
waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from shardc.runtime.comm import connect
from shardc.runtime.comm.host import HostGroup


@pytest.fixture
def group() -> Iterator[HostGroup]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield HostGroup((0,), dist.group.WORLD, None)
    dist.destroy_process_group()


def test_results_come_back_at_the_wait(group: HostGroup) -> None:
    x = torch.arange(6.0)
    for start in (
        lambda out: group.all_gather(out, x),
        lambda out: group.reduce_scatter(out, x, dist.ReduceOp.SUM),
        lambda out: group.all_to_all(out, x),
    ):
        out = torch.full((6,), -1.0)
        pending = start(out)
        assert out.tolist() == [-1] * 6
        pending.wait()
        assert torch.equal(out, x)
    for start in (lambda out: group.all_reduce(out, dist.ReduceOp.SUM), lambda out: group.broadcast(out, 0)):
        out = x.clone()
        pending = start(out)
        out.fill_(-1)
        pending.wait()
        assert torch.equal(out, x)


NCCL = "cpu:gloo,cuda:nccl"


@pytest.mark.parametrize("ranks, gpus, backend", [(2, 1, "gloo"), (2, 2, NCCL), (1, 1, NCCL)])
def test_ranks_that_share_a_gpu_talk_over_gloo(
    monkeypatch: pytest.MonkeyPatch, ranks: int, gpus: int, backend: str
) -> None:
    joined = []
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(
        dist, "init_process_group", lambda *given, **more: joined.append((*given, more["timeout"]))
    )
    connect.join(torch.device("cuda", 0), timedelta(seconds=5))
    assert [name for name, _ in joined] == [backend]
    assert joined[0][1] == timedelta(seconds=5 if backend == "gloo" else 35)
