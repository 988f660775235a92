"""Ranks of a pipeline whose micro-batches are programs of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[1]


@pytest.mark.processes
@pytest.mark.slow
def test_batch_norm_in_a_pipeline_equals_plain_accumulation(launch) -> None:
    path = os.pathsep.join([str(MODELS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = launch("micro_worker.py", 2, PYTHONPATH=path)
    assert done.returncode == 0 and "micro-batches agree" in done.stdout, done.stderr[-4000:]
