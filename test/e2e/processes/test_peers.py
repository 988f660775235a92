"""Benchmarks against peers written by hand run, and stop if the losses differ."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

BENCH = Path(__file__).parents[2] / "bench"
SMALL = ("--blocks", "1", "--width", "64", "--steps", "1", "--warmup", "1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "sizes", "rows"),
    [
        ("context_step.py", ("--batch", "1", "--sequence", "128"), 9),
        ("expert_step.py", ("--batch", "4", "--sequence", "32", "--experts", "4", "--capacity", "4"), 5),
    ],
)
def test_trains_as_its_peer(script: str, sizes: tuple[str, ...], rows: int) -> None:
    command = [sys.executable, str(BENCH / script), *SMALL, *sizes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    table = [line for line in done.stdout.splitlines() if line.startswith(("| by hand", "| shardc"))]
    assert len(table) == rows
