"""Ranks of a pipeline that keep activations for others: planned and measured peaks on four processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from shardc.compiler.memory import step_peaks
from shardc.step.compile_step import compile_step

pytestmark = pytest.mark.processes


def compiled(folder: Path, batch: torch.Tensor, *, balance: bool) -> list[int]:
    """Save a pipeline of eight equal layers to a folder, and return its planned peaks."""
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.GELU())]
    model = nn.Sequential(*layers)
    step = compile_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        (batch,),
        loss=lambda output, batch: (output - batch[0]).square().mean(),
        mesh={"pipe": 4},
        plan="pipeline",
        micro_batches=8,
        balance_activations=balance,
        fuse=False,
    )
    step.save(folder)
    return [peak.size_bytes for peak in step_peaks(step.compiled.program)]


@pytest.mark.slow
def test_measured_peaks_are_those_planned(tmp_path: Path, launch) -> None:
    batch = torch.randn(4096, 64)
    torch.save((batch,), tmp_path / "batch.pt")
    measured, losses = {}, {}
    for balance in (False, True):
        folder = tmp_path / f"out-{balance}"
        planned = compiled(folder, batch, balance=balance)
        (results := tmp_path / f"peaks-{balance}").mkdir()
        done = launch("peak_worker.py", 4, folder, tmp_path / "batch.pt", results)
        assert done.returncode == 0, done.stderr[-4000:]
        ranks = [json.loads((results / f"{rank}.json").read_text()) for rank in range(4)]
        measured[balance] = [rank["peak_bytes"] for rank in ranks]
        assert measured[balance] == pytest.approx(planned, rel=0.01)
        losses[balance] = ranks[0]["loss"]
    assert losses[True] == losses[False]
    assert measured[True][0] < 0.9 * measured[False][0]
    assert max(measured[True]) < max(measured[False])
