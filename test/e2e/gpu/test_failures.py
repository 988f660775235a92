"""Messages of a rank on a simulated GPU whose collective hangs or whose memory does not suffice."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from shardc.runtime import memory
from shardc.runtime.comm import flights, watch
from shardc.runtime.comm.collectives import Rank, described
from shardc.runtime.comm.flights import Flights
from shardc.runtime.comm.groups import Group
from shardc.runtime.comm.mesh import Mesh
from shardc.runtime.errors import CommunicationError, OutOfDeviceMemory, RankStopped
from shardc.runtime.program import Program

AXES = (("data", 1, 2),)
PROGRAM = """
GROUPS = []
def step(rank, x):
    # -- backward
    # model.py:12
    y = rank.all_reduce(x, axes=(("data", 1, 2),))
    z = x * 2
    # model.py:40
    return (y.wait() + z,)
"""


class Events:
    """A device's events: ``done`` of them are behind it. ``log`` has what was done in order."""

    def __init__(self) -> None:
        self.done, self.made, self.capturing, self.log = 0, 0, False, []

    def Event(self) -> Any:
        number, self.made = self.made, self.made + 1
        return SimpleNamespace(record=lambda: self.log.append("event"), query=lambda: number < self.done)

    def is_current_stream_capturing(self) -> bool:
        return self.capturing


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    found = Events()
    monkeypatch.setattr(flights, "cuda", found)
    return found


class Noted(Group):
    """A group of two ranks whose collectives are noted."""

    log: list[str]
    error: str | None = None

    def all_reduce(self, out: torch.Tensor, op: Any) -> Any:
        Noted.log.append("start")
        return SimpleNamespace(wait=self._wait)

    def _wait(self) -> None:
        Noted.log.append("wait")
        if self.error:
            raise RuntimeError(self.error)


def _rank(log: list[str], flights: Flights | None = None) -> Rank:
    Noted.log = log
    mesh = Mesh.read([{"name": "data", "size": 2, "kind": "space"}])
    return Rank(mesh, 0, torch.device("cpu"), {AXES: Noted((0, 1), None, None)}, flights)


def test_a_collective_starts_before_what_hides_it_and_an_event_follows_its_wait(events: Events) -> None:
    """NCCL's work runs on a stream of its own; the stream of kernels waits for it where its result is first
    read.
    """
    rank = _rank(events.log, Flights())
    found = Program.of(PROGRAM).steps[0](rank, torch.ones(3))
    assert events.log == ["start", "wait", "event"] and found[0].tolist() == [3, 3, 3]
    events.capturing = True
    Program.of(PROGRAM).steps[0](rank, torch.ones(3))
    assert events.log == ["start", "wait", "event", "start", "wait"]


def test_a_failed_collective_is_named_with_the_users_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noted, "error", "NCCL error: remote process exited")
    with pytest.raises(CommunicationError, match="NCCL error") as failed:
        Program.of(PROGRAM).steps[0](_rank([]), torch.ones(3))
    assert failed.value.collective == "all_reduce of ranks 0, 1 (model.py:12)"


def test_a_line_without_a_place_of_the_users() -> None:
    linecache.cache["<text>"] = (0, None, ["x = 1\n", "y = 2\n"], "<text>")
    assert described(("broadcast", Noted((0, 1), None, None), "<text>", 2)) == "broadcast of ranks 0, 1"


def test_the_first_event_that_is_not_passed_is_where_the_device_is(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(flights.time, "monotonic", lambda: now[0])
    found = Flights()
    assert found.stuck() is None
    for name in ("first", "second"):
        found.passed(name)
    assert found.stuck() == ("first", 0)
    now[0] = 107.0
    assert found.stuck() == ("first", 7)
    events.done = 1
    assert found.stuck() == ("second", 0)
    events.done = 2
    assert found.stuck() is None
    found.passed("third")
    assert events.made == 2  # an event that was passed is used again


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The store of two ranks, of which the other writes nothing; watches that look more often."""
    monkeypatch.setattr(watch, "BEAT_S", 0.02)
    monkeypatch.setattr(watch, "PATIENCE_S", 0.1)
    monkeypatch.setattr(watch, "NUMBERS", count())
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    held = dist.HashStore()
    held.set("shardc/0/beat/1", "1 0")
    monkeypatch.setattr(watch, "default_store", lambda: held)
    yield held
    dist.destroy_process_group()


def _stuck(store: Any, timeout_s: float) -> RankStopped:
    """How the process of rank 0 ends, whose GPU waits for a collective."""
    ended: list[RankStopped] = []
    stuck = SimpleNamespace(stuck=lambda: ("all_reduce of ranks 0, 1 (model.py:12)", 0.2))
    watch.Watch(0, 2, stuck, timeout_s, ended.append)
    for _ in range(500):
        if ended:
            return ended[0]
        watch.time.sleep(0.01)
    raise AssertionError("nothing was said")


def test_a_gpu_that_is_stuck_names_the_rank_the_collective_and_the_users_line(store: Any) -> None:
    failure = _stuck(store, 0.15)
    assert "rank 1 died or hangs: no sign of life" in failure.what
    assert failure.where == "rank 0, step 0, in all_reduce of ranks 0, 1 (model.py:12)"


def test_a_gpu_that_is_stuck_repeats_what_another_rank_left(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        dist, "barrier", lambda: store.set("shardc/0/reason", "rank 1 failed: OutOfDeviceMemory")
    )
    assert _stuck(store, 300).what == "rank 1 failed: OutOfDeviceMemory"


def test_a_collective_that_all_live_ranks_wait_for_is_named(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch.Watch, "_look", lambda self: {1: [str(watch.time.monotonic()), "0"]})
    expected = "all_reduce of ranks 0, 1 (model.py:12) failed: it did not end within 0.15 s"
    assert _stuck(store, 0.15).what == expected


GIB = 1 << 30


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(mem_get_info=lambda _: (GIB, 80 * GIB), memory_allocated=lambda _: 70 * GIB)
    monkeypatch.setattr(memory, "cuda", found)


def test_more_than_there_is_is_told_before_anything_runs(gpu: None) -> None:
    device = torch.device("cuda", 3)
    with pytest.raises(
        OutOfDeviceMemory, match=r"planned to take 90.00 GiB at its peak, and the GPU has 80.00 GiB"
    ):
        memory.check_memory(90 * GIB, device, 3)
    memory.check_memory(79 * GIB, device, 3)
    memory.check_memory(0, device, 3)
    memory.check_memory(90 * GIB, torch.device("cpu"), 0)


@pytest.mark.parametrize("planned, text", [(60 * GIB, "60.00 GiB"), (0, "an unknown number of bytes")])
def test_running_out_of_memory_says_what_was_planned(gpu: None, planned: int, text: str) -> None:
    expected = f"planned to take {text} at its peak; of the GPU's 80.00 GiB this process holds 70.00 GiB"
    with pytest.raises(OutOfDeviceMemory) as failed, memory.told(planned, torch.device("cuda", 3), 3):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB\nmore")
    assert (
        expected in failed.value.what and "1.00 GiB are free (CUDA out of memory. Tried" in failed.value.what
    )
    assert failed.value.where == "rank 3, cuda:3"
