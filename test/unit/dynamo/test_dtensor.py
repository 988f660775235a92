"""Models whose parameters are DTensors already, on two real processes: compiled, and trained as in eager."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("kind", ["tensor", "cut"])
def test_training_on_dtensors_compiles_and_equals_eager(tmp_path: Path, kind: str) -> None:
    script = Path(__file__).with_name("dtensor_training.py")
    command = [sys.executable, str(script), kind, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split("\n") == ["programs: 2", ""]  # a forward, a backward, and nothing that fell back
