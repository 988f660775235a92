"""Launch of a worker of this folder on several ranks, and the results of its training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
Trained = Callable[..., dict[str, list[float]]]


@pytest.fixture
def trained(tmp_path: Path) -> Trained:
    """``trained(script, processes, *arguments)``: the JSON that rank 0 wrote into its first argument.

    One process runs without torchrun.
    """
    count = iter(range(100))

    def run(script: str, processes: int, *arguments: object) -> dict[str, list[float]]:
        written = tmp_path / f"written-{next(count)}.json"
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        command = [sys.executable, *(torchrun if processes > 1 else ()), str(HERE / script), str(written)]
        done = subprocess.run(
            [*command, *map(str, arguments)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
        return json.loads(written.read_text())

    return run
