"""Outputs, evaluation, and forwards on another plan, on real processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.processes


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_training_and_forwards_in_turn_equal_eager(launch: Callable, ranks: int) -> None:
    done = launch("forward_worker.py", ranks)
    assert done.returncode == 0 and "as eager" in done.stdout, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_pipeline_evaluates_and_shares_its_weights(launch: Callable, ranks: int) -> None:
    done = launch("pipeline_forward_worker.py", ranks)
    assert done.returncode == 0 and "as eager" in done.stdout, done.stderr[-3000:]
