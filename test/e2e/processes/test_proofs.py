"""Proofs of programs that were compiled while a step runs on two processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.processes


@pytest.mark.slow
def test_one_rank_proves_all_programs_by_itself(launch: Callable) -> None:
    done = launch("proof_worker.py", 2)
    assert done.returncode == 0 and "a wrong program was found" in done.stdout, done.stderr[-3000:]
