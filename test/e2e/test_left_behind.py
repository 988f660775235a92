"""Files that killed commands leave in the system's temporary folder and in the cache folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SCRIPT = """import torch
from torch import nn

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, (torch.randn(8, 8),), lambda out, batch: out.square().mean()
"""
TORCH_COMPILE = """
import torch
import shardc
x = torch.linspace(0, 1, 50).requires_grad_()
torch.compile(lambda x: torch.tanh(x) * 3, backend="shardc")(x).sum().backward()
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "train.py").write_text(SCRIPT)
    places = {
        "TMPDIR": str(tmp_path / "temporary"),
        "SHARDC_CACHE_DIR": str(tmp_path / "cache"),
        "SHARDC_TUNING_DB": str(tmp_path / "tuning.db"),
    }
    kept = {name: text for name, text in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    return kept | places


def shardc(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "shardc", *arguments]


COMPILE = shardc("compile", "train.py", "--mesh", "data=2", "-o", "out")


def left(tmp_path: Path) -> list[str]:
    """Without the empty folder that PyTorch itself makes under ``torch.compile``."""
    found = [*(tmp_path / "temporary").iterdir(), *(tmp_path / "cache").glob("scratch-*")]
    return sorted(p.name for p in found if not p.name.startswith("torchinductor_") or any(p.iterdir()))


def test_commands_leave_nothing(tmp_path: Path, environment: dict[str, str]) -> None:
    commands = [
        COMPILE,
        shardc("run", "out", "--nproc", "2", "--steps", "2"),
        shardc("tune", "train.py", "--trials", "2"),
        [sys.executable, "-c", TORCH_COMPILE],
    ]
    for command in commands:
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert left(tmp_path) == [], command


def test_a_killed_command_leaves_nothing_for_the_next(tmp_path: Path, environment: dict[str, str]) -> None:
    """It is killed when it has made its folder."""
    process = subprocess.Popen(COMPILE, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    while process.poll() is None and not list((tmp_path / "cache").glob("scratch-*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert left(tmp_path) != [] and all(name.startswith("scratch-") for name in left(tmp_path))
    ran = subprocess.run(COMPILE, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0 and left(tmp_path) == [], ran.stderr
