"""Tuning jobs of a program: kernels by share of the step, and kernels that could replace library calls."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from shardc.backends.benchmark.benchmark import Choice
from shardc.commands.tune import jobs_of, jobs_of_function
from shardc.compiler import measured_regions
from shardc.passes.fuse.bodies.flat import SIZE
from shardc.passes.fuse.grouping import region

SCRIPT = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32))
    return model, torch.optim.AdamW(model.parameters()), (torch.randn(32, 64),), lambda out, batch: out.pow(2).mean()
"""  # noqa: E501


@pytest.fixture(autouse=True)
def own_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is too small to be measured, or was measured before."""
    monkeypatch.setenv("SHARDC_TUNING_DB", str(tmp_path / "tuning.db"))
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(region, "SMALL_FLOPS", 0)


def decided(monkeypatch: pytest.MonkeyPatch, name: str, calls_s: float, kernels_s: float) -> None:
    found = Choice(name, {"calls": calls_s, "kernels": kernels_s})
    monkeypatch.setattr(measured_regions, "decide", lambda *_: found)


def layers(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.relu(x @ w) @ v)


def jobs() -> list:
    torch._dynamo.reset()
    return jobs_of_function(layers, torch.randn(48, 64), torch.randn(64, 64), torch.randn(64, 64))


def test_what_loses_to_a_library_by_little_is_tuned_for_the_next_benchmark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decided(monkeypatch, "calls", 0.9e-5, 1e-5)
    found = [job for job in jobs() if job.needs < 1]
    assert [(job.task.label, job.calls) for job in found] == [("mm_relu 48x64x64 f32", 2)]
    assert found[0].needs == pytest.approx(0.9)
    decided(monkeypatch, "kernels", 1e-5, 0.9e-5)
    in_program = [job for job in jobs() if "mm" in job.task.label]
    assert [(job.task, job.calls, job.needs) for job in in_program] == [(found[0].task, 2, 1.0)]


def test_what_loses_by_far_is_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    decided(monkeypatch, "calls", 0.3e-5, 1e-5)
    assert not [job for job in jobs() if "mm" in job.task.label]


@pytest.mark.slow
def test_a_script_s_calls_are_tuned_too_and_updates_weigh_their_parameters(
    tmp_path: Path, monkeypatch
) -> None:
    decided(monkeypatch, "calls", 0.9e-5, 1e-5)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    found = jobs_of(script)
    lost = [job for job in found if job.needs < 1]
    assert sum("mm" in job.task.label for job in lost) >= 3
    assert all(job.needs == pytest.approx(0.9) for job in lost)
    (update,) = [
        job for job in found if job.size != 1.0
    ]  # of the two matrices; vectors' are in the kernels of their sums
    assert f"{SIZE}" in update.task.label and update.calls == 2
    assert update.weight == pytest.approx((64 * 128 + 128 * 32) / SIZE)
