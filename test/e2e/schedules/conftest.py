"""Paths of this folder's modules and those of ``test/e2e``, and the part of the matrix for the day."""

from __future__ import annotations

import os
import sys
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent)]

_DAY = os.environ.get("TEST_DAY", "all")
DAY = date.today() if _DAY == "all" else date.fromisoformat(_DAY)
"""The seed of the sample; ``TEST_DAY=2026-11-20`` repeats that day's."""


def pytest_generate_tests(metafunc: Any) -> None:
    if "cell" in metafunc.fixturenames:
        from matrix import sample

        cells = sample(DAY)
        metafunc.parametrize("cell", cells, ids=list(map(str, cells)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"schedules: sample of {DAY} (again with TEST_DAY={DAY})")
