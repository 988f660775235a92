"""How ranks tell each other why a step failed, when the caller catches the error and goes on."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from threading import Thread

import pytest
import torch.distributed as dist

from shardc.runtime.comm import watch
from shardc.runtime.comm.watch import Watch
from shardc.runtime.errors import RuntimeFailure

WAIT_S = 2


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Watch, Watch]]:
    """The watches of two ranks, each with a client of its own; a look at a key that is missing
    takes WAIT_S.
    """
    server = dist.TCPStore("127.0.0.1", 0, is_master=True)
    clients = [
        dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=timedelta(seconds=WAIT_S))
        for _ in range(2)
    ]
    monkeypatch.setattr(watch, "BEAT_S", 3600)
    monkeypatch.setattr(dist, "barrier", lambda: None)
    monkeypatch.setattr(Watch, "_linger", lambda self: None)
    made = []
    for rank, client in enumerate(clients):
        monkeypatch.setattr(watch, "default_store", lambda client=client: client)
        monkeypatch.setattr(watch, "NUMBERS", itertools.count())
        made.append(Watch(rank, 2))
        made[-1]._left()  # a store answers a get after what the same client set
    yield made[0], made[1]


def _fails(it: Watch, error: Exception, step: int = 0) -> Exception:
    with pytest.raises(type(error)) as caught, it.guard(step):
        raise error
    return caught.value


def test_an_error_that_the_caller_catches_is_forgotten(pair: tuple[Watch, Watch]) -> None:
    first, second = pair
    _fails(first, ValueError("a wrong batch"))
    assert second._left() == "rank 0 failed: a wrong batch"
    with first.guard(0):
        assert second._left() is None


def test_a_rank_takes_back_its_own_reason_alone(pair: tuple[Watch, Watch]) -> None:
    """The other one's may be why the next collective fails."""
    first, second = pair
    _fails(first, ValueError("a wrong batch"))
    with first.guard(0):
        pass
    _fails(second, MemoryError("no memory"))
    with first.guard(0):
        assert first._left() == "rank 1 failed: no memory"
    _fails(first, ValueError("a wrong batch"))
    with first.guard(0):
        assert first._left() == "rank 1 failed: no memory"


def test_the_first_reason_stands_and_is_what_a_broken_collective_says(pair: tuple[Watch, Watch]) -> None:
    first, second = pair
    _fails(second, MemoryError("no memory"))
    with pytest.raises(RuntimeFailure, match="rank 1 failed: no memory"), first.guard(3):
        raise RuntimeError("gloo: Connection closed by peer")


def test_no_look_waits_for_a_reason_that_is_taken_back_meanwhile(pair: tuple[Watch, Watch]) -> None:
    """A thread that waits for a missing key holds the process's connection to the store; all others wait with
    it.
    """
    first, second = pair
    looks, over = 0, False
    lost: list[Exception] = []

    def look() -> None:
        nonlocal looks
        try:
            while not over:
                second._left()
                looks += 1
        except dist.DistError as error:
            lost.append(error)

    looking = Thread(target=look)
    looking.start()
    for number in range(300):
        _fails(first, ValueError("a wrong batch"))
        time.sleep(number * 1e-6)  # to take it back at any moment of a look
        with first.guard(0):
            before = looks
            while looks == before and not lost:
                time.sleep(1e-5)
    over = True
    looking.join()
    assert not lost


ENDS_AMID_BEATS = """
import time
import torch.distributed as dist
from shardc.runtime.comm import watch
store = dist.HashStore()
watch.default_store, watch.dist.barrier, watch.BEAT_S = lambda: store, lambda: None, 0.0
made = [watch.Watch(0, 2) for _ in range(20)]
time.sleep(0.2)
"""


@pytest.mark.slow
def test_a_process_ends_well_amid_the_beats_of_its_threads() -> None:
    """A thread within the store when the interpreter ends would abort the process."""
    done = subprocess.run(
        [sys.executable, "-c", ENDS_AMID_BEATS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
