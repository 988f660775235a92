"""Searched plans: equal to eager training, with the work sharded if links are fast enough."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from models import TRAININGS
from torch import Tensor, nn
from training import captured, check_equal, trained

import shardc
from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.names import find_cluster
from shardc.diagnostics.passes.search import ConstraintNotSearched, CutsDoNotFit, NoPlanFound
from shardc.passes.search import chosen, dist_search
from shardc.passes.search.layout import WHOLE, Layout
from shardc.passes.search.step.step_graph import StepGraph
from shardc.passes.search.ways import Way
from shardc.step.compile_step import CompiledStep
from shardc.step.levels import ANNOTATED


@cache
def slow() -> Cluster:
    """A cluster on which it pays to cut all that can be: its devices are slow, and its links are not."""
    cluster = find_cluster("cpu")
    device = cluster.devices[0]
    cores = replace(device, flop_s=replace(device.flop_s, f32=1e6), memory_bytes_s=1e7, launch_s=0.0)
    return replace(cluster, devices=(cores,))


MESHES = {"4": {"data": 4}, "2x2": {"data": 2, "tensor": 2}}


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", TRAININGS)
def test_equals_eager_training(name: str, mesh: str) -> None:
    step = captured(name)
    compiled = step.compile(MESHES[mesh], "auto", cluster=slow())
    check_equal(step, compiled, TRAININGS[name], trained(name))


@pytest.fixture
def each_phase_gathers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all values that several calls read in the layout that the search chose for all of these calls."""

    def keeps(step: StepGraph, value: int, layout: Layout, ways: Sequence[Way]) -> bool:
        return value not in step.stored and all(mark >= WHOLE for mark in layout)

    monkeypatch.setattr(chosen, "_is_gathered_again", keeps)


@pytest.mark.usefixtures("each_phase_gathers")
@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", TRAININGS)
def test_values_that_are_kept_in_shards_equal_eager_training(name: str, mesh: str) -> None:
    step = captured(name)
    compiled = step.compile(MESHES[mesh], "auto", cluster=slow())
    check_equal(step, compiled, TRAININGS[name], trained(name))


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", TRAININGS)
def test_micro_batches_equal_eager_training(name: str, mesh: str) -> None:
    step = captured(name)
    compiled = step.compile(MESHES[mesh], "auto", cluster=slow(), micro_batches=2)
    check_equal(step, compiled, TRAININGS[name], trained(name))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return (x - y).square().mean()


def compiled(cluster: Cluster, **options: object) -> CompiledStep:
    torch.manual_seed(0)
    model = Net()
    batch = torch.randn(16, 64), torch.randn(16, 64)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    more = {"mesh": MESHES["2x2"], "plan": "auto", "cluster": cluster, "fuse": False, **options}
    return shardc.compile_step(model, optimizer, batch, **more)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "mixtral", "convnet"])
def test_outer_axes_cut_the_batch(name: str) -> None:
    step = captured(name)
    mesh = {"data": 2, "outer": 2, "inner": 2}
    compiled = step.compile(mesh, "auto", cluster=slow(), micro_batches=2)
    check_equal(step, compiled, TRAININGS[name], trained(name))


@pytest.mark.parametrize(
    "order", [{}, {"schedule": "zb-h1"}, {"schedule": "interleaved", "stages": 4}], ids=str
)
def test_stages_are_cut_inside(order: dict[str, object]) -> None:
    mesh = {"pipe": 2, "data": 2, "tensor": 2}
    step = compiled(slow(), mesh=mesh, plan="pipeline*auto", micro_batches=2, **order)
    assert step.compiled.plan.pipeline == "pipe"
    assert step.compiled.work.share <= 0.26
    assert step.check().passed


def with_memory(size_bytes: float) -> Cluster:
    """A node of GPUs that have so much memory each."""
    cluster = find_cluster("h100")
    return replace(cluster, devices=(replace(cluster.devices[0], memory_bytes=size_bytes),))


def test_work_is_cut_where_devices_are_slow() -> None:
    step = compiled(slow())
    assert step.compiled.work.share <= 0.26
    assert step.check().passed


def test_nothing_is_cut_where_sending_takes_longer() -> None:
    """The update of a tiny model takes less than the latency of a collective between nodes."""
    step = compiled(find_cluster("h100-1x4"))
    assert step.compiled.work.share == 1.0
    assert "dist.all" not in str(step.compiled.rank_module)


@pytest.mark.slow
def test_memory_is_kept() -> None:
    """State of 50 kB a copy, as much again for gradients and some for activations."""
    whole, cut = compiled(find_cluster("h100")), compiled(with_memory(100e3))
    assert state_bytes(whole) > 3.5 * state_bytes(cut)
    assert cut.check().passed
    with pytest.raises(NoPlanFound, match=r"4 devices of 10\.0 kB"):
        compiled(with_memory(10e3))


def state_bytes(step: CompiledStep) -> float:
    text = str(step.plan)
    assert "found by the search" in text
    sizes = re.findall(r"^  opt_state +([\d.]+) (k?B)", text, re.MULTILINE)
    return sum(float(size) * (1000 if unit == "kB" else 1) for size, unit in sizes)


def test_the_report_has_the_certificate() -> None:
    text = str(compiled(slow()).plan)
    assert re.search(
        r"\[Searched\] estimated time \d+\.\d+ ms .* no plan takes less than \d+\.\d+ ms \(gap 0\.\d\d%\)",
        text,
    )


def test_a_constraint_is_kept() -> None:
    asked = compiled(slow(), constraints={"layers.1": ["tensor", None]})
    assert "dist.constraint" in str(asked.compiled.levels.module(ANNOTATED))
    assert asked.check().passed
    with pytest.raises(ConstraintNotSearched, match="does not support the layout"):
        compiled(slow(), constraints={"layers.1": [["tensor", "data"], None]})


@pytest.mark.usefixtures("each_phase_gathers")
def test_a_saved_plan_is_the_same_program_without_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = compiled(slow(), micro_batches=2)
    step.save_plan(tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text())["cuts"]["kept"]
    monkeypatch.setattr(dist_search, "graph_on", lambda *_, **__: pytest.fail("searched again"))
    again = compiled(slow(), plan=str(tmp_path / "plan.json"), micro_batches=2)
    assert again.compiled.plan.entries == step.compiled.plan.entries
    assert again.compiled.program_text == step.compiled.program_text
    assert again.compiled.plan_json == step.compiled.plan_json
    assert again.check().passed


BY_DATA, BY_TENSOR = {"layers.1": ["data", None]}, {"layers.1": ["tensor", None]}


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, {"clip_grad_norm": 1.0}), ({"constraints": BY_DATA}, {"constraints": BY_TENSOR})],
)
def test_saved_cuts_of_other_calls_are_left(
    before: dict[str, object], after: dict[str, object], tmp_path: Path
) -> None:
    """Layouts of arguments decide then, as in plans that were saved before cuts were."""
    step, file = compiled(slow(), **before), tmp_path / "plan.json"
    step.save_plan(file)
    again = compiled(slow(), plan=str(file), **after)
    assert "CutsLeft" in str(again.plan)
    assert again.check().passed


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"calls": []}, "they are for 0 calls, and it has"),
        ({"kinds": [["nothing", None]] * 99}, r"can't be sharded as \['nothing', None\]"),
        ({"arguments": [[7, 7]] * 99}, "they are for"),
        ({"kept": [[0, 9, [0, 0]]]}, "has no result 9"),
        ({"kept": [[0, 0, [7, 7]]]}, "can't be sharded as"),
    ],
)
def test_saved_cuts_that_cannot_be_are_named(
    changed: dict[str, object], problem: str, tmp_path: Path
) -> None:
    step, file = compiled(slow()), tmp_path / "plan.json"
    step.save_plan(file)
    held = json.loads(file.read_text())
    held["cuts"] |= changed
    file.write_text(json.dumps(held))
    with pytest.raises(CutsDoNotFit, match=problem):
        compiled(slow(), plan=str(file))


def test_the_report_says_what_other_cuts_cost() -> None:
    step = compiled(slow())
    found = step.compiled.searched
    assert found is not None
    assert sum(seconds for _, seconds in found.causes) == pytest.approx(found.seconds)
    assert [runner.module for runner in found.runners_up] == [f"layers.{n}" for n in range(4)]
    assert all(runner.more_s >= -1e-12 for runner in found.runners_up)
    text = str(step.plan)
    assert "products sharded otherwise" in text
    assert "products, attention among them, limit the plan" in text
