"""The collectives of a rank program on four real processes."""

from __future__ import annotations

import pytest


@pytest.mark.slow
@pytest.mark.processes
def test_every_collective_on_every_group(launch) -> None:
    done = launch("collectives_worker.py", 4)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "all collectives agree" in done.stdout
