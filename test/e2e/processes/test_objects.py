"""On a mesh the user's own model and optimizer are those of the training, also of several steps over them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_the_users_objects_follow_the_training(ranks: int, tmp_path: Path, launch) -> None:
    done = launch("objects_worker.py", ranks, tmp_path)
    assert done.returncode == 0 and "the user's objects follow" in done.stdout, done.stderr[-4000:]


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_steps_share_modules(ranks: int, launch) -> None:
    done = launch("shared_worker.py", ranks)
    assert done.returncode == 0 and "steps share what they train" in done.stdout, done.stderr[-4000:]
