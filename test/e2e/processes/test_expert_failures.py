"""Failures of experts on processes are named errors."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.processes


@pytest.mark.slow
@pytest.mark.parametrize("fuse", [0, 1])
def test_an_index_of_no_expert(launch, fuse: int) -> None:
    done = launch("expert_worker.py", 2, fuse)
    assert done.returncode != 0 and not done.stdout
    said = "NoSuchExpert: aten.index.Tensor: a row chooses expert 4, but there are 4"
    assert f"{said}\n  at: expert_worker.py:23" in done.stderr, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("fuse", [0, 1])
def test_a_step_without_room_runs_again(launch, fuse: int) -> None:
    done = launch("rerun_worker.py", 2, fuse)
    assert done.stdout.strip() == "as it should", done.stderr[-3000:]
