"""Trials go to the tasks with the most time and the largest expected gain."""

import math
import random

import pytest
from surface import task

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.trial import Outcome, Trial
from shardc.tuner.task_scheduler import FIRST, Job, Progress, TaskScheduler, expected_gain


def progress(calls=1, estimate_s=1e-3, ratios=(), default_s=1e-3):
    made = [
        Trial(Point.of("p", {"n": n + 1}), Outcome.MEASURED, r, r * default_s)
        if math.isfinite(r)
        else Trial(Point.of("p", {"n": n + 1}), Outcome.CRASHED)
        for n, r in enumerate(ratios)
    ]
    return Progress(Job(task(), calls), estimate_s, made)


def test_what_was_never_tried_is_expected_to_gain_and_what_never_changes_is_not():
    assert expected_gain([], 8) == FIRST
    assert expected_gain([1.0] * 20, 8) == 0.0


def test_the_expected_gain_is_about_what_more_draws_from_an_exponential_tail_give():
    draw, said, found = random.Random(0), [], []
    for _ in range(400):
        ratios = [math.exp(draw.expovariate(-4.0)) for _ in range(128)]  # no lower bound
        said.append(expected_gain(ratios[:64], 64))
        found.append(1 - min(ratios) / min(ratios[:64]))
    assert sum(said) == pytest.approx(sum(found), rel=0.35)


def test_failures_shrink_it():
    ratios = [1.0, 0.9, 0.95, 0.8, 1.1, 1.2]
    assert 0 < expected_gain(ratios + [math.inf] * 20, 8) < expected_gain(ratios, 8)


def test_failures_are_no_measurements():
    """A kernel whose first points all fail is still worth trials: no ratios say that it does not gain."""
    assert expected_gain([1.0, *[math.inf] * 7], 8) == FIRST / 2


def test_what_was_found_last_is_expected_again_in_part():
    flat = [1.0] * 16
    assert expected_gain([*flat, *flat[:7], 0.5], 8) >= 1 - math.sqrt(0.5)


def test_a_round_goes_to_calls_times_seconds():
    few, many = progress(1), progress(50)
    assert TaskScheduler([few, many], 8).next() is many


def test_a_kernel_that_stopped_gaining_gives_way_to_a_smaller_one():
    flat, small = progress(50, ratios=[1.0] * 40), progress(1)
    assert TaskScheduler([flat, small], 8).next() is small


def test_equal_jobs_go_in_order_and_exhausted_ones_are_passed_over():
    one, other = progress(), progress()
    assert TaskScheduler([one, other], 8).next() is one
    one.exhausted = True
    assert TaskScheduler([one, other], 8).next() is other
    other.exhausted = True
    assert TaskScheduler([one, other], 8).next() is None
    assert TaskScheduler([one, other], 8).regret() == 0.0


def test_estimates_of_what_was_not_measured_are_scaled_by_what_was():
    # Estimated alike; the measured one took a hundred times as long as estimated, so the other is taken to as
    # well.
    measured, unknown = progress(1, 1e-3, [1.0, 0.9, 0.8, 0.7, 0.9], 0.1), progress(1, 1e-3)
    assert TaskScheduler([measured, unknown], 8).next() is unknown


def test_the_regret_is_of_the_whole_step():
    alone = progress(1)
    beside = progress(99, ratios=[1.0] * 40)
    assert TaskScheduler([alone], 8).regret() == pytest.approx(FIRST)
    assert TaskScheduler([alone, beside], 8).regret() == pytest.approx(FIRST / 100)


def test_the_best_is_the_fastest_that_was_measured_and_never_worse_than_the_default():
    assert progress(ratios=[1.2, 0.8, math.inf]).best_ratio == 0.8
    assert progress(ratios=[1.2, math.inf]).best_ratio == 1.0
    assert progress(ratios=[math.inf]).best is None
    assert progress(ratios=[2.0, 0.5, 1.0], default_s=0.25).default_s == 0.25


def of(needs=1.0, ratios=(), calls=1, size=1.0):
    found = progress(ratios=ratios)
    found.job = Job(task(), calls, size, needs)
    return found


def test_a_kernel_that_would_stand_for_a_call_gets_trials_while_they_may_bring_it_below():
    near, far = of(needs=0.98), of(needs=0.7)
    assert TaskScheduler([far, near], 8).next() is near
    # 40 trials gained nothing: no more of them are expected to take a tenth off it, so it stays a call.
    ratios = [1.0 + 0.001 * n for n in range(40)]
    assert TaskScheduler([of(needs=0.9, ratios=ratios)], 8).regret() == 0.0
    assert TaskScheduler([of(ratios=ratios)], 8).regret() > 0.0


def test_the_step_has_the_faster_of_kernel_and_call():
    assert of(needs=0.9).used_ratio == 0.9
    assert of(needs=0.9, ratios=[0.95]).used_ratio == 0.9
    assert of(needs=0.9, ratios=[0.85]).used_ratio == 0.85
    scheduler = TaskScheduler([of(needs=0.5, ratios=[1.0] * 40), of(ratios=[1.0] * 40)], 8)
    assert scheduler._step_s(scheduler._jobs[0]) == pytest.approx(scheduler._step_s(scheduler._jobs[1]) / 2)


def test_a_kernel_of_any_number_of_elements_weighs_what_it_is_called_with():
    small, large = of(calls=10, size=0.001), of(calls=1, size=1.0)
    assert TaskScheduler([small, large], 8).next() is large
    assert small.job.weight == pytest.approx(0.01)
