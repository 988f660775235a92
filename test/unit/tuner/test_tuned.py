"""Compiles use results of tuning, and never search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from kernel_tasks import fused, unfused
from tune_ship import ship

import shardc
from shardc.backends.body.extract import kernels
from shardc.backends.cpu import compile as compiled_kernels
from shardc.backends.cpu.target import CpuTarget
from shardc.backends.tuning.kernel_text import configure
from shardc.backends.tuning.point import Point
from shardc.backends.tuning.trial import Outcome, Trial
from shardc.commands.explain_fusion import explain_path
from shardc.diagnostics.base import collect_remarks
from shardc.diagnostics.tuner import TuningDatabaseWarning
from shardc.dialects.kern.config import read_config
from shardc.dynamo import compile_program as graph_compiler
from shardc.passes.fuse.grouping.explain import explain_fusion, with_tuned
from shardc.report.fusion_text import render
from shardc.step.compile_step import CompiledStep
from shardc.tuner import apply_tuned as tuned
from shardc.tuner.database.database import Database, open_database
from shardc.tuner.extract_tasks import kernels_of, tasks_of
from shardc.tuner.space.of_task import space_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setenv("SHARDC_TUNING_DB", str(tmp_path / "tuning.db"))
    return tmp_path


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list:
    """The modules that libraries were made of: their tasks, and the configurations of their kernels."""
    found = []
    real = compiled_kernels.build_library

    def build(module):
        configs = [
            read_config(k.attributes["config"]) if "config" in k.attributes else None for k in kernels(module)
        ]
        found.append(([task for task, _ in tasks_of(module)], configs))
        return real(module)

    monkeypatch.setattr(compiled_kernels, "build_library", build)
    return found


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The phases of the graphs that were really imported."""
    found: list[str] = []
    real = graph_compiler.import_graph
    monkeypatch.setattr(
        graph_compiler,
        "import_graph",
        lambda graph, phase, lowered: found.append(phase) or real(graph, phase, lowered),
    )
    return found


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 2, -1) + 1


def run(x: torch.Tensor) -> torch.Tensor:
    """As a new process would."""
    torch._dynamo.reset()
    return torch.compile(program, backend="shardc")(x)


def other_point(task) -> Point:
    """A legal point whose values are not those of the table."""
    return next(p for p in space_of(task).ranked(50) if p.config != space_of(task).ranked(1)[0].config)


def record(task, point: Point, ratio: float = 0.8) -> None:
    with open_database() as database:
        database.record(task, [Trial(point, Outcome.MEASURED, ratio, 1e-5)])


def test_torch_compile_uses_what_was_found(built: list, imports: list[str]) -> None:
    x = torch.randn(64, 96)
    first = run(x)
    ((tasks, configs),) = built
    assert configs == [None]
    run(x)
    assert len(built) == len(imports) == 1  # from the program cache
    point = other_point(tasks[0])
    record(tasks[0], point)
    second = run(x)
    assert built[1] == (tasks, [point.config])
    torch.testing.assert_close(first, second)
    torch.testing.assert_close(second, program(x))
    run(x)
    assert len(built) == len(imports) == 2
    record(tasks[0], other_point(tasks[0]), ratio=1.1)  # tried again, it is slower than the default
    run(x)
    assert built[2] == (tasks, [None])


def softmax():
    return fused(lambda x: [program(x)], torch.randn(64, 96))


def matmul():
    return fused(lambda a, b: [torch.relu(a @ b)], torch.randn(64, 64), torch.randn(64, 64))


def test_what_has_a_configuration_keeps_it() -> None:
    module = softmax()
    ((task, _),) = tasks_of(module)
    record(task, other_point(task))
    (kernel,) = kernels(module)
    configure(kernel, Point.of("mine", {"rows": 2}))
    tuned.use_tuned(module, CpuTarget())
    assert read_config(kernel.attributes["config"]) == {"rows": 2}


@pytest.mark.parametrize("what", ["sketch", "parameter", "value"])
def test_what_is_no_longer_legal_is_ignored_and_said(what: str) -> None:
    module = matmul()
    ((task, _),) = tasks_of(module)
    good = other_point(task)
    bad = {
        "sketch": Point("gone", good.values),
        "parameter": Point(good.sketch, (*good.values, ("gone", 1))),
        "value": Point(good.sketch, tuple((name, 7_777_777) for name, _ in good.values)),
    }[what]
    record(task, bad)
    with collect_remarks() as remarks:
        tuned.use_tuned(module, CpuTarget())
    (kernel,) = kernels(module)
    assert "config" not in kernel.attributes
    (said,) = remarks
    assert said.name == "TuningIgnored" and task.label in said.message


def test_what_is_measured_here_is_used_before_what_is_shipped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if that gained more on the machine it was measured on."""
    monkeypatch.setenv("SHARDC_SHIPPED_TUNING", str(folder / "shipped.jsonl"))
    module = softmax()
    ((task, _),) = tasks_of(module)
    here, there = [p for p in space_of(task).ranked(50) if p.config != space_of(task).ranked(1)[0].config][:2]
    with Database(folder / "elsewhere.db") as elsewhere:
        elsewhere.record(task, [Trial(there, Outcome.MEASURED, 0.5, 1e-5)])
        ship(elsewhere, folder / "shipped.jsonl")
    record(task, here)
    tuned.use_tuned(module, CpuTarget())
    (kernel,) = kernels(module)
    assert read_config(kernel.attributes["config"]) == here.config


def test_other_sizes_lend_their_point_where_it_is_legal() -> None:
    module = softmax()
    ((task, _),) = tasks_of(module)
    near = task.text.replace("64x96", "48x96").replace("64x1x", "48x1x").replace("tensor<64x", "tensor<48x")
    record(replace(task, text=near, label="of 48 rows"), other_point(task))
    tuned.use_tuned(module, CpuTarget())
    (kernel,) = kernels(module)
    assert read_config(kernel.attributes["config"]) == other_point(task).config


def test_explanations_say_what_was_tuned() -> None:
    module = unfused(lambda x: [program(x)], torch.randn(64, 96))
    report = explain_fusion(module)
    ((task, _),) = tasks_of(module)
    record(task, other_point(task))
    tuned.use_tuned(module, CpuTarget())
    assert "0 of 1 kernels were tuned, 1 have the default" in render(report)
    said = f"tuned: {other_point(task)}, 0.80x of the default's time (measured here, 1 trial)"
    assert said in render(with_tuned(report, module))
    assert "configurations: 1 of 1 kernels were tuned, 0 have the default" in render(
        with_tuned(report, module)
    )


def test_explanations_of_compiled_functions_say_what_was_tuned(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(64, 96)
    plain = str(shardc.explain_fusion(program, x))
    assert "configurations: 0 of 1 kernels were tuned, 1 have the default" in plain and "tuned: " not in plain
    ((task, _),) = tasks_of(softmax())
    record(task, other_point(task))
    with open_database() as database:
        ship(database, folder / "shipped.jsonl")
    said = f"tuned: {other_point(task)}, 0.80x of the default's time ("
    assert f"{said}measured here, 1 trial)" in str(shardc.explain_fusion(program, x))
    record(task, other_point(task), ratio=1.25)
    assert "tuned: the default, faster than what was tried (measured here, 1 trial)" in str(
        shardc.explain_fusion(program, x)
    )
    monkeypatch.setenv("SHARDC_TUNING_DB", str(folder / "another.db"))
    monkeypatch.setenv("SHARDC_SHIPPED_TUNING", str(folder / "shipped.jsonl"))
    assert f"{said}shipped with shardc, 1 trial)" in str(shardc.explain_fusion(program, x))


def test_a_step_and_its_artefact_hold_what_was_found(folder: Path) -> None:
    def step() -> CompiledStep:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.LayerNorm(64), torch.nn.GELU())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        mean = lambda out, _: out.square().mean()  # noqa: E731
        return shardc.compile_step(model, optimizer, (torch.ones(16, 32),), mesh={"data": 1}, loss=mean)

    tasks = [task for task, _ in tasks_of(step().compiled.kernel_module)]
    points = {}
    for task in tasks:
        ranked = space_of(task).ranked(2)
        points[task] = ranked[-1]
        record(task, ranked[-1])
    tuned_step = step()
    configs = {
        task: read_config(kernel.attributes["config"])
        for task, (kernel, *_) in kernels_of(tuned_step.compiled.kernel_module).items()
    }
    assert configs == {task: point.config for task, point in points.items()}
    assert tuned_step.check().passed
    tuned_step.save(folder / "out")
    assert explain_path(folder / "out").count("0.80x of the default's time (measured here, 1 trial)") >= len(
        tasks
    )


def test_tasks_of_a_sharded_step_have_local_sizes() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(48, 96), torch.nn.GELU(), torch.nn.Linear(96, 48))
    optimizer, batch = torch.optim.SGD(model.parameters(), lr=0.1), (torch.randn(32, 48),)
    labels = []
    for mesh, plan in (({"data": 1}, "data"), ({"tensor": 2}, "tensor")):
        mean = lambda out, _: out.square().mean()  # noqa: E731
        options = {"mesh": mesh, "plan": plan, "matmuls": "generated"}
        step = shardc.compile_step(model, optimizer, batch, loss=mean, **options)
        labels.append(" ".join(task.label for task, _ in tasks_of(step.compiled.kernel_module)))
    assert "gelu 32x96x48" in labels[0]
    assert "gelu 32x48x48" in labels[1]
    assert "96" not in labels[1], "no task has the whole width"


def test_a_damaged_database_does_not_keep_a_program_from_compiling(folder: Path) -> None:
    (folder / "tuning.db").write_bytes(b"SQLite format 3\0" + bytes(5000))
    x = torch.randn(64, 96)
    with pytest.warns(TuningDatabaseWarning, match="damaged"):
        torch.testing.assert_close(run(x), program(x))
    assert list(folder.glob("tuning.db.damaged-*"))


def test_a_later_database_is_left_alone(folder: Path) -> None:
    with open_database() as database:
        database.connection.execute("PRAGMA user_version = 99")
    x = torch.randn(64, 96)
    with pytest.warns(TuningDatabaseWarning, match="schema 99"):
        torch.testing.assert_close(run(x), program(x))
    assert (folder / "tuning.db").exists()
