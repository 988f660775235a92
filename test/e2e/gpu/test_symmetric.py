"""Collectives by symmetric memory between threads: choice, results, and reasons against it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from shardc.runtime.comm import groups as c10d
from shardc.runtime.comm import symmetric
from shardc.runtime.comm.collectives import Rank
from shardc.runtime.comm.groups import Group, place_of
from shardc.runtime.comm.mesh import Mesh
from shardc.runtime.comm.symmetric import ONE_SHOT_BYTES, use_symmetric_memory
from shardc.runtime.environment import SYMMETRIC_BYTES

from .fake_symmetric import TIMEOUT_S, FakeMemory, FakeStreams

GPU = torch.device("cuda", 0)
SUM = dist.ReduceOp.SUM
AXES = ((0, None),)


class OwnGroups:
    """The groups of one rank, as :class:`~shardc.runtime.comm.groups.Groups` has them."""

    def __init__(self, group: Group) -> None:
        self.group = group

    def __getitem__(self, axes: Any) -> Group:
        return self.group

    def items(self) -> list[tuple[Any, Group]]:
        return [(AXES, self.group)]

    def __setitem__(self, axes: Any, group: Group) -> None:
        self.group = group


class Ranks:
    """``size`` ranks of one group, each a thread; ``place`` as in a mesh whose order is not c10d's."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, size: int, wrong: bool = False, turned: bool = False
    ) -> None:
        self.size, self.memory, self.streams = size, FakeMemory(size, wrong), FakeStreams()
        self.ranks = tuple(reversed(range(size))) if turned else tuple(range(size))
        self._barrier = threading.Barrier(size, timeout=TIMEOUT_S)
        self._fits: list[bool] = []
        self._lock = threading.Lock()
        monkeypatch.setattr(symmetric, "cuda", self.streams)
        monkeypatch.setattr(symmetric, "kernels", self.memory)
        monkeypatch.setattr(symmetric, "_module", lambda: self.memory)
        monkeypatch.setattr(symmetric, "agree", self._agree)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(size))
        monkeypatch.setenv("LOCAL_RANK", "0")  # the threads share one environment

    def _agree(self, fits: bool, group: Group, device: torch.device) -> bool:
        with self._lock:
            self._fits.append(fits)
        self._barrier.wait()
        every = all(self._fits)
        if self._barrier.wait() == 0:
            self._fits.clear()
        self._barrier.wait()
        return every

    def run(self, work: Callable[[int, Group], Any], nccl: bool = True) -> tuple[list[Any], list[list[str]]]:
        """What ``work(number, group)`` gives on each rank, after its group was chosen, and what was said of
        it.
        """
        results: list[Any] = [None] * self.size
        said: list[list[str]] = [[]] * self.size
        errors: list[BaseException] = []

        def rank(number: int) -> None:
            self.memory.local.rank = number
            handle = SimpleNamespace(group_name="fake", number=number)
            own = OwnGroups(Group(self.ranks, handle, place_of(self.ranks)))
            try:
                said[number] = use_symmetric_memory(own, GPU, nccl)
                results[number] = work(number, own.group)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=rank, args=(n,)) for n in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return results, said


def values(number: int, count: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(number)).to(dtype)


def in_order(parts: list[Tensor]) -> Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


@pytest.mark.parametrize("size", [2, 4, 8])
def test_sums_are_those_of_the_ranks_in_order(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Odd counts, both forms, both dtypes, one after the other in one buffer, on all ranks bit for bit."""
    counts = [1, 7, 1000, ONE_SHOT_BYTES // 4, ONE_SHOT_BYTES // 2 + 3]

    def work(number: int, group: Group) -> list[Tensor]:
        made = []
        for dtype in (torch.float32, torch.bfloat16, torch.float32):
            for count in counts:
                out = values(number, count, dtype)
                group.all_reduce(out, SUM).wait()
                made.append(out)
        return made

    ranks = Ranks(monkeypatch, size)
    results, said = ranks.run(work)
    assert all("by symmetric memory all_reduce" in line for lines in said for line in lines)
    assert {"one_shot", "two_shot"} == set(ranks.memory.calls)
    wanted = [
        in_order([values(n, count, dtype) for n in range(size)])
        for dtype in (torch.float32, torch.bfloat16, torch.float32)
        for count in counts
    ]
    for made in results:
        assert all(map(torch.equal, made, wanted))


@pytest.mark.parametrize("turned", [False, True])
def test_a_programs_collectives(monkeypatch: pytest.MonkeyPatch, turned: bool) -> None:
    """Through ``Rank``, as programs call them: blocks are in the order of the index over the axes."""
    mesh = Mesh.read([{"name": "data", "size": 4, "kind": "space"}])
    ranks = Ranks(monkeypatch, 4, turned=turned)

    def work(number: int, group: Group) -> tuple[Tensor, ...]:
        rank = Rank(mesh, number, torch.device("cpu"), OwnGroups(group))
        x = torch.full((3, 4), float(number))
        flags = torch.tensor([number == 2])
        return (
            rank.all_reduce(x, axes=AXES).wait(),
            rank.all_gather(x, dim=1, axes=AXES).wait(),
            rank.all_gather(flags, dim=0, axes=AXES).wait(),
            rank.reduce_scatter(torch.arange(8.0).reshape(8, 1) + number, dim=0, axes=AXES).wait(),
            torch.tensor(group.memory.taken.total()),
        )

    results, _ = ranks.run(work)
    index = {rank: i for i, rank in enumerate(ranks.ranks)}
    whole = torch.arange(8.0).reshape(8, 1) * 4 + 6
    for number, (total, gathered, flags, scattered, taken) in enumerate(results):
        assert torch.equal(total, torch.full((3, 4), 6.0)) and taken == 4
        assert torch.equal(
            gathered, torch.tensor(ranks.ranks, dtype=torch.float32).repeat_interleave(4).expand(3, 16)
        )
        assert flags.tolist() == [rank == 2 for rank in ranks.ranks]
        assert torch.equal(scattered, whole[2 * index[number] :][:2])


def test_what_does_not_fit_is_c10ds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other reductions and dtypes, empty tensors and large ones."""
    monkeypatch.setenv(SYMMETRIC_BYTES.name, str(4 << 10))
    given: list[tuple[str, torch.dtype, int]] = []

    def note(name: str) -> Callable[..., str]:
        return lambda out, *rest, **_: given.append((name, out.dtype, out.numel())) or "c10d"

    monkeypatch.setattr(dist, "all_reduce", note("all_reduce"))
    monkeypatch.setattr(c10d, "_gather", note("all_gather"))
    monkeypatch.setattr(c10d, "_reduce_scatter", note("reduce_scatter"))

    def work(number: int, group: Group) -> list[Any]:
        x = torch.ones(1024)
        return [
            group.all_reduce(x, dist.ReduceOp.MAX),
            group.all_reduce(x.half(), SUM),
            group.all_reduce(x[:0], SUM),
            group.all_reduce(torch.ones(1025), SUM),
            group.all_gather(torch.ones(2050), torch.ones(1025)),
            group.reduce_scatter(torch.ones(1025), torch.ones(2050), SUM),
            group.all_reduce(x, SUM).wait(),
            group.memory.taken["all_reduce"],
        ]

    results, said = Ranks(monkeypatch, 2).run(work)
    assert results == [["c10d"] * 6 + [None, 1]] * 2 and len(given) == 12
    assert "all_gather up to 4 KiB, reduce_scatter up to 4 KiB; the rest by NCCL" in said[0][0]


@pytest.mark.parametrize(
    "size, change, why",
    [
        (3, lambda p, r: None, "symmetric memory is for groups of 2, 4, 8, not of 3"),
        (
            2,
            lambda p, r: p.setenv(SYMMETRIC_BYTES.name, "0"),
            "is switched off: SHARDC_SYMMETRIC_BYTES",
        ),
        (2, lambda p, r: setattr(r.streams, "peers", False), "cuda:0 does not reach the memory of cuda:1"),
        (2, lambda p, r: p.setenv("LOCAL_WORLD_SIZE", "1"), "its ranks are on several hosts"),
        (2, lambda p, r: p.setenv("LOCAL_RANK", "1"), "local rank 1 is on cuda:0"),
        (2, lambda p, r: p.setattr(torch.version, "hip", "6.3"), "not tried on AMD's GPUs"),
        (2, lambda p, r: p.setattr(symmetric, "kernels", object()), "has no symm_mem.one_shot_all_reduce"),
        (2, lambda p, r: p.setattr(symmetric, "_module", _no_module), "No module named"),
        (
            2,
            lambda p, r: setattr(r.memory, "wrong", True),
            "a sum of torch.float32 by symmetric memory came out wrong",
        ),
    ],
)
def test_why_a_group_stays_with_nccl(
    monkeypatch: pytest.MonkeyPatch, size: int, change: Callable[[Any, Ranks], None], why: str
) -> None:
    ranks = Ranks(monkeypatch, size)
    change(monkeypatch, ranks)
    kinds, said = ranks.run(lambda number, group: type(group))
    assert kinds == [Group] * size
    for (line,) in said:
        assert line.startswith(f"ranks {', '.join(map(str, range(size)))}: by NCCL (") and why in line


def _no_module() -> Any:
    raise ImportError("No module named 'torch.distributed._symmetric_memory'")


def test_one_rank_that_cannot_decides_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, 2)
    rendezvous = ranks.memory.rendezvous

    def fails(buffer: Tensor, name: str) -> Any:
        handle = rendezvous(buffer, name)
        if ranks.memory.local.rank == 1:
            raise RuntimeError("CUDA error: out of handles\nmore of it")
        return handle

    monkeypatch.setattr(ranks.memory, "rendezvous", fails)
    kinds, said = ranks.run(lambda number, group: type(group))
    assert kinds == [Group] * 2
    assert "does not fit another rank" in said[0][0] and "out of handles)" in said[1][0]


def test_gloo_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that share a GPU, and those of a CPU."""
    kinds, said = Ranks(monkeypatch, 2).run(lambda number, group: type(group), nccl=False)
    assert kinds == [Group] * 2 and said[0] == [
        "ranks 0, 1: by Gloo (tensors are on cuda:0; symmetric memory is for GPUs that NCCL connects)"
    ]


def test_what_a_collective_reads_lives_until_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its memory may be used again by the stream that called it, while another still reads it."""

    def work(number: int, group: Group) -> tuple[bool, bool]:
        blocks, out = torch.ones(64), torch.empty(32)
        seen = weakref.ref(blocks)
        handle = group.reduce_scatter(out, blocks, SUM)
        del blocks
        before = seen() is not None
        handle.wait()
        return before, seen() is not None

    assert Ranks(monkeypatch, 2).run(work)[0] == [(True, False)] * 2
