"""A device's streams: overlap of kernels and collectives."""

import pytest

from shardc.cost.step.streams import HOST, Played, Task, behind_s, play

TENSOR, DATA = ("tensor",), ("data",)


def test_kernels_run_one_after_the_other() -> None:
    played = play([Task("matmul", 2.0), Task("memory", 1.0, needs=(0,)), Task("matmul", 3.0)])
    assert played.seconds == 6.0
    assert played.busy_s == {"matmul": 5.0, "memory": 1.0}
    assert played.waits_s == {}


def test_a_collective_hides_behind_kernels_until_it_is_read() -> None:
    tasks = [Task("matmul", 1.0), Task("all_reduce", 4.0, (0,), TENSOR), Task("matmul", 3.0, (0,))]
    hidden = play([*tasks, Task("memory", 1.0, (2,))])
    assert hidden.seconds == 5.0
    read = play([*tasks, Task("memory", 1.0, (1,))])
    assert (read.seconds, read.waits_s) == (6.0, {"tensor": 1.0})


def test_what_nobody_reads_is_waited_for_at_the_end() -> None:
    played = play([Task("matmul", 1.0), Task("all_reduce", 4.0, (0,), DATA)])
    assert (played.seconds, played.waits_s) == (5.0, {"data": 4.0})


def test_collectives_over_the_same_axes_take_turns_and_over_others_do_not() -> None:
    both = [Task("all_reduce", 2.0, axes=DATA), Task("all_reduce", 2.0, axes=DATA)]
    assert play(both).seconds == 4.0
    assert play([both[0], Task("all_reduce", 2.0, axes=TENSOR)]).seconds == 2.0


def test_without_overlap_every_collective_stops_the_kernels() -> None:
    tasks = [Task("matmul", 1.0), Task("all_reduce", 4.0, (0,), TENSOR), Task("matmul", 3.0, (0,))]
    played = play(tasks, overlap=False)
    assert (played.seconds, played.waits_s) == (8.0, {"tensor": 4.0})


def test_busy_and_waiting_add_up_to_the_whole() -> None:
    tasks = [Task("a", 1.0), Task("c", 5.0, (0,), TENSOR), Task("b", 2.0, (0,)), Task("c", 9.0, (2,), DATA)]
    played = play([*tasks, Task("a", 1.0, (1,))])
    assert sum(played.busy_s.values()) + sum(played.waits_s.values()) == pytest.approx(played.seconds)


def test_a_host_far_behind_takes_all_the_time_and_one_far_ahead_none() -> None:
    assert behind_s(1.0, 100.0) == pytest.approx(99.0, rel=1e-3)
    assert behind_s(1.0, 0.1) == pytest.approx(0.0, abs=1e-4)
    assert behind_s(1.0, 1.0) == pytest.approx(2**0.25 - 1)
    assert behind_s(0.0, 0.0) == 0.0


def test_waiting_for_the_host_is_a_cause() -> None:
    played = play([Task("matmul", 1.0, calls=3)]).with_host(10.0)
    assert played.seconds == pytest.approx(30.0, rel=1e-3)
    assert played.waits_s[HOST] == pytest.approx(29.0, rel=1e-3)


def test_played_parts_add_and_repeat() -> None:
    one = Played(2.0, {"matmul": 1.0}, {"data": 1.0}, 3)
    assert (one + one * 2) == Played(6.0, {"matmul": 3.0}, {"data": 3.0}, 9)
