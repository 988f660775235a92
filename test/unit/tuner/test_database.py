"""Trials on disk: what is written stays, from whatever many processes; what is chosen is of today's generator."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_tasks import rows

from shardc.tuner.database import Database, open_database
from shardc.tuner.point import Point
from shardc.tuner.task import Task
from shardc.tuner.trial import Outcome, Trial


@pytest.fixture(scope="module")
def task() -> Task:
    return rows(32)


@pytest.fixture
def database(tmp_path: Path):
    with open_database(tmp_path / "tuning.db") as opened:
        yield opened


def trial(tile: int, ratio: float | None, outcome: Outcome = Outcome.MEASURED, sketch: str = "t") -> Trial:
    return Trial(
        Point.of(sketch, {"tile": tile, "rows": 8}), outcome, ratio, ratio and ratio * 1e-3, said="as it was"
    )


def test_trials_come_back_as_they_were(database: Database, task: Task):
    written = [
        trial(8, 0.9),
        trial(16, None, Outcome.WRONG),
        Trial(Point.of("u", {}), Outcome.BUILT, figures={"registers": 80}),
    ]
    database.record(task, written)
    assert database.trials(task) == written


def test_the_best_was_measured_and_is_of_the_last_trial_of_its_point(database: Database, task: Task):
    assert database.best(task) is None
    database.record(task, [trial(8, 0.5), trial(16, None, Outcome.CRASHED), trial(32, 0.8)])
    database.record(task, [trial(8, 0.9)])  # measured again: it is not so good
    found = database.best(task)
    assert (found.point, found.ratio, found.trials, found.near) == (trial(32, 0.8).point, 0.8, 3, None)
