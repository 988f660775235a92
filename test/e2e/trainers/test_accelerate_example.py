"""The example with accelerate equals plain PyTorch, and TensorBoard's file has its metrics."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

EXAMPLE = Path(__file__).parents[3] / "examples" / "accelerate_tensorboard.py"


def plain_losses() -> list[float]:
    """The same training by PyTorch alone, on whole batches of 16 rows: accelerate deals out parts in turn."""
    names = runpy.run_path(str(EXAMPLE))
    model, optimizer, rows = names["build"]()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.5)
    losses = []
    for _ in range(2):
        for first in range(0, 64, 16):
            x, y = rows[first : first + 16]
            loss = names["loss_of"](model(x), {"y": y})
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
    return losses


@pytest.mark.processes
@pytest.mark.slow
def test_the_example_is_equal_to_plain_pytorch_and_tracked(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(EXAMPLE), str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    losses = json.loads((tmp_path / "losses.json").read_text())
    assert losses == pytest.approx(plain_losses(), rel=1e-5) and losses[-1] < losses[0]
    folders = {path.parent for path in tmp_path.rglob("events.out.*")}
    opened = [EventAccumulator(str(folder)).Reload() for folder in folders]
    [read] = [events for events in opened if "loss" in events.Tags()["scalars"]]
    assert {"loss", "lr", "seconds"} <= {*read.Tags()["scalars"]}
    assert [event.value for event in read.Scalars("loss")] == pytest.approx(losses)
    assert [event.value for event in read.Scalars("lr")] == pytest.approx([1e-2] * 4 + [5e-3] * 4)
