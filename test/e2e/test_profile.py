"""Profile of an artefact, and a report of its run with the prediction."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

SCRIPT = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    batch = (torch.randn(32, 64),)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return model, optimizer, batch, lambda output, batch: nn.functional.mse_loss(output, batch[0])
"""


@pytest.mark.slow
def test_profile_and_run_of_two_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("SHARDC_TUNING_DB", str(tmp_path / "tuning.db"))
    (tmp_path / "train.py").write_text(SCRIPT)

    def shardc(*arguments: str) -> str:
        command = [sys.executable, "-m", "shardc", *arguments]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    shardc("compile", "train.py", "--mesh", "data=2", "--plan", "zero3", "-o", "out")
    before = shardc("run", "out", "--nproc", "2", "--steps", "5")
    assert "time of a step: no prediction, measured" in before
    first = shardc("profile", "out", "--steps", "3")
    count, whole = map(
        int, re.findall(r"(\d+) of (\d+) different calls measured: 2 processes at once", first)[0]
    )
    assert count == whole > 0 and "step: " in first and "data" in first
    assert f"0 of {whole} different calls measured" in shardc("profile", "out", "--steps", "3")
    after = shardc("run", "out", "--nproc", "2", "--steps", "5")
    assert re.search(r"time of a step: predicted [\d.]+ ms, measured [\d.]+ ms \(median of 2\)", after)
    assert re.search(r"tensors at the peak: planned [\d.]+ MB, measured [\d.]+ MB", after)
