"""The time of a step by measured calls."""

import pytest

from shardc.cost.profile import Conditions, Profile, ProgramCall

HERE = Conditions("a machine, 2 cores", 4, 1)
MM, ALL_REDUCE = ProgramCall("aten.mm.default(float32[2, 2])"), ProgramCall("all_reduce() over 2", ("data",))
PROFILE = Profile(HERE, {MM.text: 0.002, ALL_REDUCE.text: 0.001})


def test_calls_are_added_up_by_the_axes_that_they_wait_for():
    time = PROFILE.step_time([[MM, ALL_REDUCE, MM]])
    assert time.seconds == pytest.approx(0.005)
    assert time.causes == pytest.approx({"calls": 0.004, "data": 0.001})
    assert time.render()[0] == "step: 5.0 ms, by calls that were measured on this machine"


def test_the_slowest_rank_counts():
    assert PROFILE.step_time([[MM], [MM, MM]]).seconds == pytest.approx(0.004)


def test_missing_calls_are_named_once():
    other = ProgramCall("aten.relu.default(float32[2])")
    assert PROFILE.missing([MM, other, other]) == [other.text]
