"""Paths of this folder's modules and those of ``test/e2e``, and the models in the day's sample."""

from __future__ import annotations

import os
import sys
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "e2e")]

_DAY = os.environ.get("TEST_DAY", "all")
DAY = date.today() if _DAY == "all" else date.fromisoformat(_DAY)
"""The seed of the sample; ``TEST_DAY=2026-11-20`` repeats that day's."""
COUNT = 20
CUTS = 30
"""Models and meshes that are cut (``cuts.py``)."""
SEARCHED = 4
"""Models whose plan is searched (``test_searched.py``), without a mesh and as a pipeline."""


def pytest_generate_tests(metafunc: Any) -> None:
    if "zoo_model" in metafunc.fixturenames:
        metafunc.parametrize("zoo_model", todays_sample())
    if "zoo_searched" in metafunc.fixturenames:
        metafunc.parametrize("zoo_searched", todays_sample()[:SEARCHED])
    if "zoo_cut" in metafunc.fixturenames:
        metafunc.parametrize("zoo_cut", todays_cuts(), ids="-".join)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(
        f"zoo: sample of {DAY} (again with TEST_DAY={DAY}): {' '.join(todays_sample())}"
    )


def todays_sample() -> list[str]:
    from table import read_passing
    from walk import sample

    return sample(COUNT, DAY, read_passing())


def todays_cuts() -> list[tuple[str, str]]:
    """(model, mesh)"""
    from cuts import read_cuts
    from walk import sample

    known = (f"{model} {mesh}" for mesh, kinds in read_cuts().items() for model in kinds["cut"])
    return [(model, mesh) for model, mesh in (pair.split() for pair in sample(CUTS, DAY, known))]
