"""Points of a GPU's task are checked and timed; here Triton's interpreter replaces the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from kernel_tasks import fused, matmul_gelu, rows

pytest.importorskip("triton", reason="Triton is not installed: its kernels can be neither run nor compiled")

from shardc.backends.body.extract import kernels
from shardc.backends.registry import find_target
from shardc.backends.triton.clock import DeviceClock
from shardc.backends.triton.tuning import run_job as gpu_job
from shardc.backends.triton.tuning import runner as gpu_runner
from shardc.backends.triton.tuning.builder import GpuBuilder
from shardc.backends.triton.tuning.run_job import GpuBench
from shardc.backends.triton.tuning.runner import GpuRunner
from shardc.backends.tuning.decision import Pairs, Rule
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Built, Outcome
from shardc.commands.tune import tune_jobs
from shardc.cost.machine import GPUS
from shardc.diagnostics.tuner import GpuNotHere
from shardc.dialects.kern.config import read_config
from shardc.runtime.kernels import triton_kernels
from shardc.tuner.apply_tuned import use_tuned
from shardc.tuner.database.database import open_database
from shardc.tuner.extract_tasks import tasks_of
from shardc.tuner.measurer import Measurer
from shardc.tuner.session import Budget
from shardc.tuner.space.of_task import space_of
from shardc.tuner.task_scheduler import Job

INTERPRETED = {"TRITON_INTERPRET": "1"}
RULE = Rule(most=5)


def task() -> Task:
    return replace(matmul_gelu(64), target="sm_90")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))


@pytest.fixture(scope="module")
def built() -> Iterator[Built]:
    builder = GpuBuilder(1)
    (found,) = builder.build(task(), [None])
    yield found
    builder.close()


def behaving(built: Built, name: str, launch: str) -> Built:
    """The same module with another launch."""
    path = built.path.with_name(f"{name}.py")
    path.write_text(f"{built.path.read_text()}\n\ndef launch(*tensors):\n    {launch}\n")
    return replace(built, path=path, code=name)


@pytest.mark.slow
def test_points_are_checked_and_timed_in_turns():
    points = list(space_of(task()).ranked(2))
    with Measurer(processes=1, rule=RULE, runners={"triton": GpuRunner(environment=INTERPRETED)}) as measurer:
        trials = list(measurer.measure(task(), points))
        confirmed = measurer.confirm(task(), points[1])
    assert [t.point for t in trials] == points
    assert all(t.ok and t.ratio > 0 and t.seconds > 0 for t in [*trials, confirmed]), trials
    assert trials[0].figures["registers"] > 16


def test_a_kernel_of_any_number_of_elements_is_called_for_one_set_of_tensors(monkeypatch: pytest.MonkeyPatch):
    """The interpreter is too slow for the 2^20 elements that it is timed on."""

    class Modules:
        def __init__(self, folder: Path) -> None:
            assert folder == Path("made")

        def batch(self, name, members):
            assert (name, members) == ("kernel_7", [(1 << 20, [((1 << 20,), torch.float32)])])
            return lambda *given: [tensors[0] + tensors[1] for tensors in given]

    monkeypatch.setattr(gpu_job, "Modules", Modules)
    bench = object.__new__(GpuBench)
    bench.outputs, bench.size = [((1 << 20,), torch.float32)], 1 << 20
    assert bench.load(Path("made/kernel_7.py"))(2, 3) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "launch", "outcome", "said"),
    [
        ("wrong", "tensors[-1].zero_()", Outcome.WRONG, "result 0 is off by"),
        ("aborts", "import os; os.abort()", Outcome.CRASHED, "SIGABRT"),
        ("raises", "raise RuntimeError('out of resources')", Outcome.CRASHED, "out of resources"),
        ("hangs", "import time; time.sleep(1000)", Outcome.TIMED_OUT, "it took more than 12 s"),
    ],
)
def test_a_candidate_that_fails_costs_itself(
    built: Built, name: str, launch: str, outcome: Outcome, said: str
):
    runner = GpuRunner(limit_s=12 if name == "hangs" else 60, environment=INTERPRETED)
    try:
        ended = runner.measure(task(), behaving(built, name, launch), built.path, RULE)
        assert isinstance(ended, tuple)
        found, why = ended
        assert found is outcome and said in why
        assert isinstance(
            runner.measure(task(), built, built.path, RULE), Pairs
        )  # a process of its own failed
    finally:
        runner.close()


@pytest.mark.slow
def test_where_its_gpu_is_not_a_kernel_is_not_run(built: Built, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu_runner, "cuda", SimpleNamespace(is_available=lambda: False))
    with pytest.raises(GpuNotHere, match="kernels for sm_90 cannot run here: there is no GPU"):
        GpuRunner().measure(task(), built, built.path, RULE)
    with Measurer(processes=1) as measurer:
        assert not measurer.runs(task())
        assert next(measurer.measure(task(), [space_of(task()).ranked(1)[0]])).outcome is Outcome.BUILT
    monkeypatch.setattr(gpu_runner, "gpu_here", lambda: GPUS["sm_80"])
    with pytest.raises(GpuNotHere, match="there is sm_80"):
        GpuRunner().measure(task(), built, built.path, RULE)
    assert GpuRunner().runs("sm_80") and not GpuRunner().runs("sm_90")


def test_the_gpu_that_is_here_is_asked_of_its_driver(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        gpu_runner, "cuda", SimpleNamespace(is_available=lambda: True, current_device=lambda: 0)
    )
    found = SimpleNamespace(
        major=9, minor=0, multi_processor_count=132, max_threads_per_multi_processor=2048, gcnArchName=""
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: found)
    monkeypatch.setattr(triton_kernels, "driver_version", lambda: 13000)
    assert gpu_runner.gpu_here().name == "sm_90" and GpuRunner().runs("sm_90")
    monkeypatch.setattr(triton_kernels, "driver_version", lambda: 11000)
    assert gpu_runner.gpu_here() is None  # its driver does not load what Triton makes


def test_events_of_the_device_time_it(monkeypatch: pytest.MonkeyPatch):
    """A call of a kernel lies between two events, on the inputs whose turn it is."""
    bench = object.__new__(GpuBench)
    bench.device, bench.sets = torch.device("cuda"), [[1], [2]]
    seen: list[int] = []
    monkeypatch.setattr(DeviceClock, "seconds", lambda self, call: call() or 0.5)
    assert bench.seconds(seen.append, 1, 1) == 0.5 and seen == [2]


@pytest.mark.slow
def test_what_was_measured_is_chosen_and_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHARDC_TUNING_DB", str(tmp_path / "tuning.db"))
    module = fused(lambda x: [torch.softmax(x * 2, -1)], torch.randn(32, 64))
    ((of, _),) = tasks_of(module, find_target("sm_90"))
    assert of.text == rows().text
    measurer = Measurer(processes=1, rule=RULE, runners={"triton": GpuRunner(environment=INTERPRETED)})
    with measurer, open_database() as database:
        result = tune_jobs([Job(of)], database, measurer, Budget(trials=3, regret=0.0))
        best = min((t for t in database.trials(of) if t.ok), key=lambda t: t.ratio)
        database.record(of, [replace(best, ratio=0.5)])
    assert all(t.ok for t in result.tasks[0].trials)
    use_tuned(module, find_target("sm_90"))
    assert [read_config(k.attributes["config"]) for k in kernels(module)] == [best.point.config]
