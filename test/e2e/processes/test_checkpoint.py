"""Checkpoints written on a 2 x 2 mesh, read on 2 x 2, on one axis of 4, and on 2 ranks."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.processes
def test_state_and_checkpoints(tmp_path: Path, launch) -> None:
    for mode, ranks in (("save", 4), ("load", 4), ("load", 2)):
        done = launch("checkpoint_worker.py", ranks, mode, tmp_path / "checkpoint")
        assert done.returncode == 0, f"{mode} on {ranks}: {done.stderr[-4000:]}"
        assert "state agrees" in done.stdout
