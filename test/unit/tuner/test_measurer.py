"""Measurement of points: a failing candidate affects no other trial."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from kernel_tasks import matmul_gelu, rows

from shardc.backends.cpu.target import RUN_JOB
from shardc.backends.cpu.tuning.builder import CpuBuilder
from shardc.backends.tuning.decision import Pairs, Rule, Verdict
from shardc.backends.tuning.point import Point
from shardc.backends.tuning.runner import Runner
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Built, Outcome
from shardc.diagnostics.tuner import TaskNotTunable
from shardc.tuner.measurer import Measurer
from shardc.workers.process import Refused

GOOD = Point.of("good", {"block_m": 16})


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):
    """A measurer whose compiler and runner fail at points that say so; limits are long enough for those that
    do not.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    builder = CpuBuilder(1, limit_s=5, job="bad_jobs:build")
    with Measurer(builders={"cpu": builder}, runners={"cpu": Runner("bad_jobs:run", limit_s=5)}) as measurer:
        yield measurer


@pytest.mark.slow
def test_a_trial_for_each_point_in_order():
    points = [Point.of("t", {"block_m": n}) for n in (8, 16, 8)]
    with Measurer() as measurer:
        trials = list(measurer.measure(matmul_gelu(), points))
        confirmed = measurer.confirm(matmul_gelu(), points[1])
    assert [t.point for t in trials] == points
    assert all(t.ok and t.ratio > 0 and t.seconds > 0 and t.spread >= 0 for t in [*trials, confirmed])
    assert trials[0].ratio == trials[2].ratio  # measured once


@pytest.mark.slow
def test_the_default_has_ratio_1():
    with Measurer() as measurer:
        measurer.begin(matmul_gelu(), GOOD)
        (trial,) = measurer.measure(matmul_gelu(), [GOOD])
    assert trial.ratio == 1.0


@pytest.mark.slow
def test_a_candidate_that_fails_costs_itself(failing: Measurer):
    sketches = ["compiler crashes", "compiler hangs", "wrong", "segfaults", "hangs"]
    trials = list(failing.measure(matmul_gelu(), [*(Point.of(s, {"block_m": 16}) for s in sketches), GOOD]))
    found = {t.point.sketch: (t.outcome, t.said) for t in trials}
    assert found["compiler crashes"] == (Outcome.NOT_BUILT, found["compiler crashes"][1])
    assert "SIGABRT" in found["compiler crashes"][1]
    assert found["compiler hangs"] == (Outcome.NOT_BUILT, "the compiler took more than 5 s")
    assert found["wrong"][0] is Outcome.WRONG and "result 0 is off by" in found["wrong"][1]
    assert found["segfaults"][0] is Outcome.CRASHED and "SIGSEGV" in found["segfaults"][1]
    assert found["hangs"] == (Outcome.TIMED_OUT, "it took more than 5 s")
    assert found["good"][0] is Outcome.MEASURED
    assert [t.point for t in trials if t.ok] == [GOOD]


@pytest.mark.slow
def test_what_is_known_of_an_earlier_run_is_the_incumbent():
    task = matmul_gelu()
    with Measurer() as measurer:
        (known,) = measurer.measure(task, [GOOD])
    with Measurer() as measurer:
        measurer.begin(task, None, known)
        (trial,) = measurer.measure(task, [Point.of("t", {"block_m": 8})])
    assert trial.ok


class Compiled:
    """A builder that compiles nothing: each point is a program of its own."""

    def start(self):
        pass

    def close(self):
        pass

    def build(self, task, points):
        return [Built(p, Path(str(p)), str(p)) for p in points]


class Lucky:
    """A runner in which whatever is new seems faster than the incumbent by a fifth, and nothing is faster
    than the default.
    """

    def runs(self, target):
        return True

    def start(self, threads):
        pass

    def close(self):
        pass

    def measure(self, task, candidate, incumbent, rule):
        first = str(candidate.point) == "t(block_m=1)"
        ratio = 0.9 if first else 0.98 if incumbent == Path("None") else 0.8
        return Pairs((ratio,) * 8, (1.0,) * 8, Verdict.FASTER if ratio < 0.95 else Verdict.EQUAL)


def test_luck_against_incumbents_does_not_multiply():
    points = [Point.of("t", {"block_m": n}) for n in range(1, 9)]
    with Measurer(builders={"cpu": Compiled()}, runners={"cpu": Lucky()}) as measurer:
        trials = list(measurer.measure(matmul_gelu(), points))
    assert [t.ratio for t in trials] == [0.9, *[0.98] * 7]


class Fragile(Lucky):
    """The same, in which nothing but the first point survives beside the default."""

    def measure(self, task, candidate, incumbent, rule):
        if str(candidate.point) != "t(block_m=1)" and incumbent == Path("None"):
            return Outcome.WRONG, "result 0 is off"
        return super().measure(task, candidate, incumbent, rule)


def test_what_fails_beside_the_default_is_no_incumbent():
    points = [Point.of("t", {"block_m": n}) for n in (1, 2, 3)]
    with Measurer(builders={"cpu": Compiled()}, runners={"cpu": Fragile()}) as measurer:
        trials = list(measurer.measure(matmul_gelu(), points))
    assert [t.ok for t in trials] == [True, False, False]
    assert {(t.outcome, t.ratio, t.said) for t in trials[1:]} == {(Outcome.WRONG, None, "result 0 is off")}


@pytest.mark.slow
def test_a_task_without_a_reference_costs_itself():
    """The process that was asked for it has no reference of the task before either."""
    task = rows()
    lost = Task(task.text.replace("func.func", "func.none", 1), task.target, task.threads)
    builder, runner = CpuBuilder(1), Runner(RUN_JOB)
    with closing(builder), closing(runner):
        (built,) = builder.build(task, [GOOD])
        assert isinstance(runner.measure(task, built, built.path, Rule(most=2)), Pairs)
        with pytest.raises(Refused):
            runner.measure(lost, built, built.path, Rule(most=2))
        assert isinstance(runner.measure(task, built, built.path, Rule(most=2)), Pairs)


@pytest.mark.slow
def test_a_default_that_is_wrong_is_an_error(failing: Measurer):
    wrong = Point.of("wrong", {"block_m": 16})
    failing.begin(matmul_gelu(), wrong)
    with pytest.raises(TaskNotTunable, match="result 0 is off"):
        list(failing.measure(matmul_gelu(), [wrong]))


@pytest.mark.slow
def test_a_kernel_of_rows():
    with Measurer() as measurer:
        trials = list(measurer.measure(rows(), [Point.of("t", {"piece": 64}), Point.of("t", {"rows": 32})]))
    assert all(t.ok for t in trials)
