"""Functions in forked children: results, failures, and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from shardc.workers import forked
from shardc.workers.forked import Forked, ForkedServer, concurrently
from shardc.workers.process import Ended


def never() -> bool:
    return False


def test_a_child_has_a_copy_of_what_this_process_has() -> None:
    given = [1]

    def change() -> tuple[list[int], int]:
        given.append(2)
        return given, os.getpid()

    changed, process = Forked(change).result(never)
    assert changed == [1, 2]
    assert given == [1]
    assert process != os.getpid()


def test_a_large_result_arrives_while_others_wait() -> None:
    children = [Forked(lambda size=size: b"x" * size) for size in (1, 5_000_000, 10)]
    assert [len(child.result(never)) for child in children] == [1, 5_000_000, 10]


def test_a_child_is_busy_until_it_ends() -> None:
    out, into = os.pipe()
    child = Forked(lambda: len(os.read(out, 1)))
    assert child.is_busy
    os.write(into, b"!")
    assert child.result(never) == 1
    assert not child.is_busy
    os.close(out)
    os.close(into)


@pytest.mark.parametrize("how", ["raises", "dies", "returns what cannot be pickled"])
def test_a_child_without_a_result_has_ended(how: str) -> None:
    def fail() -> object:
        if how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "raises":
            raise ValueError("not here")
        return lambda: None

    with pytest.raises(Ended, match="no answer"):
        Forked(fail).result(never)


def test_a_child_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "IDLE_S", 0.2)
    child = Forked(lambda: time.sleep(60))
    with pytest.raises(Ended, match="no CPU time"):
        child.result(never)
    assert not child.is_busy


def test_a_caller_that_stops_to_wait_ends_the_child() -> None:
    child = Forked(lambda: time.sleep(60))
    with pytest.raises(Ended, match="nobody waits"):
        child.result(lambda: True)
    child.end()
    assert not child.is_busy


def test_a_server_answers_each_request_and_keeps_what_it_began_with() -> None:
    kept = list[int]()
    server = ForkedServer[int, tuple[list[int], int]](lambda n: (kept, n), lambda: kept.append(7))
    for number in (1, 2):
        server.ask(number)
        assert server.result(never) == ([7], number)
    assert kept == []
    server.end()
    assert not server.is_alive


def test_requests_and_answers_may_be_large_while_a_server_begins() -> None:
    server = ForkedServer[bytes, bytes](lambda content: content * 2, lambda: time.sleep(0.2))
    server.ask(b"x" * 3_000_000)
    assert server.is_asked
    assert server.result(never) == b"x" * 6_000_000
    assert not server.is_asked
    server.end()


def test_a_server_lives_on_after_errors() -> None:
    def begin() -> None:
        raise ValueError("not now")

    server = ForkedServer[float, float](lambda number: 1 / number, begin)
    server.ask(0.0)
    with pytest.raises(Ended, match="ZeroDivisionError: float division by zero"):
        server.result(never)
    server.ask(2.0)
    assert server.result(never) == 0.5
    server.end()
    server.end()


def test_a_request_that_cannot_be_pickled_is_not_asked() -> None:
    server = ForkedServer[object, str](lambda request: f"{request}", lambda: None)
    with pytest.raises(Ended, match="not asked"):
        server.ask(lambda: None)
    assert not server.is_asked
    server.ask(3)
    assert server.result(never) == "3"
    server.end()


def test_a_server_that_dies_has_ended() -> None:
    server = ForkedServer[int, None](lambda how: os.kill(os.getpid(), how), lambda: None)
    server.ask(signal.SIGKILL)
    with pytest.raises(Ended, match="no answer"):
        server.result(never)
    assert not server.is_alive


def test_a_server_ends_with_its_parent() -> None:
    def serve() -> int:
        server = ForkedServer[int, int](lambda _: os.getpid(), lambda: None)
        server.ask(0)
        return server.result(never)

    process = Forked(serve).result(never)  # whose child has ended, but not by `end`
    deadline = time.monotonic() + 20
    while Path(f"/proc/{process}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{process}").exists()


def test_functions_run_at_the_same_time_and_the_first_one_here() -> None:
    here = os.getpid()
    numbers = [(0, here), *((number, 0) for number in (1, 2))]
    found = concurrently([lambda n=n: (n, os.getpid()) for n, _ in numbers])
    assert [n for n, _ in found] == [0, 1, 2]
    assert [process == here for _, process in found] == [True, False, False]


def test_what_a_child_cannot_do_is_done_here() -> None:
    here = os.getpid()

    def alone() -> int:
        if os.getpid() != here:
            raise ValueError("not in a child")
        return 5

    assert concurrently([lambda: 4, alone]) == [4, 5]


def test_an_error_ends_the_children_and_is_raised() -> None:
    def fail() -> None:
        raise ValueError("the first")

    began = time.monotonic()
    with pytest.raises(ValueError, match="the first"):
        concurrently([fail, lambda: time.sleep(60)])
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("threads", [1, 2])
def test_a_child_with_threads_has_a_pool_of_its_own(threads: int) -> None:
    def product() -> tuple[float, int]:
        return float(torch.mm(torch.ones(600, 600), torch.ones(600, 600)).sum()), torch.get_num_threads()

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        product()  # starts the pool of this thread
        assert Forked(product, threads).result(never) == (600.0**3, threads)
    finally:
        torch.set_num_threads(before)


def test_cpu_time_of_what_a_child_started_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "IDLE_S", 0.4)
    command = [
        sys.executable,
        "-c",
        "import time; e = time.monotonic() + 2\nwhile time.monotonic() < e: pass",
    ]
    assert Forked(lambda: subprocess.run(command, check=False).returncode).result(never) == 0
