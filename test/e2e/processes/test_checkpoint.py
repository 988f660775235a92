"""Checkpoints written on a 2 x 2 mesh, read on 2 x 2, 4 and 2 ranks; ranks that die in a save."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.processes
def test_state_and_checkpoints(tmp_path: Path, launch) -> None:
    for mode, ranks in (("save", 4), ("load", 4), ("load", 2)):
        done = launch("checkpoint_worker.py", ranks, mode, tmp_path / "checkpoint")
        assert done.returncode == 0, f"{mode} on {ranks}: {done.stderr[-4000:]}"
        assert "state agrees" in done.stdout


@pytest.mark.slow
@pytest.mark.processes
def test_a_rank_that_dies_in_a_save(tmp_path: Path, launch) -> None:
    """One before its tensors are written, and the first before it would put the new checkpoint in place."""
    folder = tmp_path / "checkpoint"
    assert launch("checkpoint_worker.py", 4, "save", folder).returncode == 0
    before = (folder / ".metadata").read_bytes()
    for rank, event, name in ((2, "open", "__2_0.distcp"), (0, "os.rename", ".metadata")):
        killed = launch("checkpoint_worker.py", 4, "kill", folder, rank, event, name)
        assert re.search(r"exitcode *: -9 ", killed.stderr), killed.stderr[-4000:]
        assert (folder / ".metadata").read_bytes() == before
        assert len(list(folder.glob("shardc-save-*"))) <= 2, "what the dead save before left is gone"
    done = launch("checkpoint_worker.py", 2, "load", folder)
    assert done.returncode == 0, done.stderr[-4000:]
