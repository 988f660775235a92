"""Two processes with shares 3:1 train as one device does, over checkpoints to equal shares and back."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.processes
def test_unequal_shares(tmp_path: Path, launch) -> None:
    done = launch("shares_worker.py", 2, tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "training with unequal shares agrees" in done.stdout
