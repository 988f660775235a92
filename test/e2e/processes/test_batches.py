"""Ranks that pass different batches to ``step``, or start from different weights, are noticed."""

from __future__ import annotations

import pytest


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize(
    "odd", [3, pytest.param(0, marks=pytest.mark.slow), pytest.param(-1, marks=pytest.mark.slow)]
)
def test_different_batches_are_noticed(odd: int, launch) -> None:
    done = launch("batch_worker.py", 2, odd)
    assert done.returncode == 0 and "as it should" in done.stdout, done.stderr[-4000:]


@pytest.mark.processes
@pytest.mark.slow
def test_different_weights_are_noticed(launch) -> None:
    done = launch("weights_worker.py", 2)
    assert done.returncode == 0 and "as it should" in done.stdout, done.stderr[-4000:]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(
    ("ways", "plan"), [(2, "zero3"), pytest.param(4, "data", marks=pytest.mark.slow)], ids=str
)
def test_batches_of_other_shapes(ways: int, plan: str, launch) -> None:
    done = launch("shapes_worker.py", ways, plan)
    assert done.returncode == 0 and "as it should" in done.stdout, done.stderr[-4000:]
