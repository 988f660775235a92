"""Two processes try the plans of a search, choose one, and train with it."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.processes
def test_plans_are_tried(tmp_path: Path, launch) -> None:
    settings = {"SHARDC_CACHE_DIR": str(tmp_path), "SHARDC_PLAN_CACHE": "1", "SHARDC_STEP_CACHE": "1"}
    done = launch("trials_worker.py", 2, **settings)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "the chosen plan trains as eager does" in done.stdout
