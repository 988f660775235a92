"""Starting real ranks: each launch costs seconds, so a test groups many checks in one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent

Launch = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def launch() -> Launch:
    """``launch(script, nproc, *arguments, **environment)`` runs a script of this folder under torchrun."""

    def run(script: str | Path, nproc: int, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nproc)]
        return subprocess.run(
            [*command, str(HERE / script), *map(str, arguments)],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    return run


def tail(done: subprocess.CompletedProcess[str]) -> str:
    """The end of a run's output, for assertion messages."""
    return f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
