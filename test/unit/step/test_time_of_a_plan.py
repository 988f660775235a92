"""``print(step.plan)`` has the estimated time of a step on the plan's cluster."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import shardc
from shardc.cost.cluster.names import find_cluster
from shardc.report.step.step_time import step_time
from shardc.step import once
from shardc.step.compile_step import CompiledStep


def compiled(**options: object) -> CompiledStep:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 8))
    optimizer = torch.optim.SGD(model.parameters())
    batch = torch.randn(8, 16)
    return shardc.compile_step(
        model, optimizer, batch, loss=lambda out, _: out.square().mean(), fuse=False, **options
    )


def test_a_step_for_a_cluster_says_its_time() -> None:
    step = compiled(mesh={"data": 2, "tensor": 2}, plan="zero3*tensor", cluster="h100")
    time = step.compiled.time
    assert time is not None and time == step_time(step.compiled.rank_module, find_cluster("h100"))
    shown = step.plan.render()
    assert f"estimated {time.render()[0]}, before ops are fused" in shown
    assert all(line in shown for line in time.render()[1:])


def test_a_pipeline_has_its_bubble() -> None:
    step = compiled(mesh={"pipe": 2}, plan="pipeline", micro_batches=4, cluster="h100")
    time = step.compiled.time
    assert time is not None and time.causes["bubble"] > 0


def test_a_step_for_no_cluster_does_not() -> None:
    step = compiled(mesh={"data": 2}, plan="data")
    assert step.compiled.time is None and "estimated" not in step.plan.render()


def test_a_step_that_is_loaded_says_the_same(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDC_STEP_CACHE", "1")
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(once, "added", set())  # other tests of this process add rules: no step is kept then
    first, again = (compiled(mesh={"data": 2}, plan="zero3", cluster="h100") for _ in range(2))
    assert "loaded from the cache" in again.compiled.seconds
    assert first.compiled.time is not None and first.compiled.time == again.compiled.time
