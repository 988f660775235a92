"""Runs a benchmark script on four local processes, one thread each, with torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import torch.distributed as dist

PROCESSES = 4


def on_processes(work: Callable[[], None]) -> None:
    """``work()`` on each of the processes; called by a script that torchrun starts again with the same
    arguments.
    """
    if "RANK" not in os.environ:
        launch = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(PROCESSES),
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        raise SystemExit(subprocess.run([*launch, *sys.argv], env=environment, check=False).returncode)
    work()
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # Gloo's threads abort at random in a normal exit
