"""Tuning databases and exports of others: reading executes nothing, and data is checked."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kernel_tasks import rows

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Outcome, Trial
from shardc.diagnostics.tuner import NotATuningExport, TuningDatabaseWarning
from shardc.tuner.database import exchange, place
from shardc.tuner.database.database import Database, open_database


@pytest.fixture(scope="module")
def task() -> Task:
    return rows(32)


@pytest.fixture
def path(tmp_path: Path, task: Task) -> Path:
    """A database with two trials of a kernel."""
    path = tmp_path / "tuning.db"
    with open_database(path) as database:
        points = [Point.of("t", {"tile": tile}) for tile in (8, 16)]
        database.record(task, [Trial(point, Outcome.MEASURED, 0.5, 1e-3) for point in points])
    return path


def change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


OBJECTS = {
    "a trigger": ["CREATE TRIGGER t AFTER INSERT ON trials BEGIN DELETE FROM tasks; END"],
    "a view in a table's place": [
        "ALTER TABLE facts RENAME TO others",
        "CREATE VIEW facts AS SELECT name, load_extension('/tmp/attack.so') AS value FROM others",
    ],
    "a view without an end": [
        "DROP TABLE facts",
        "CREATE VIEW facts AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT 'choices' AS name, max(i) AS value FROM n",
    ],
    "another view of ours": ["DROP VIEW best", "CREATE VIEW best AS SELECT * FROM trials"],
    "a table more": ["CREATE TABLE more (x)"],
}


@pytest.mark.parametrize("attack", OBJECTS)
def test_what_is_no_data_is_set_aside(path: Path, task: Task, attack: str) -> None:
    change(path, *OBJECTS[attack])
    assert place._choices(path) == ""  # what every compile reads
    with pytest.warns(TuningDatabaseWarning, match="tables, views or triggers"), open_database(path) as new:
        assert new.trials(task) == []
    assert len(list(path.parent.glob("tuning.db.damaged-*"))) == 1  # the user's, and not lost


ROWS = {
    "a point that is no JSON": "UPDATE trials SET point = '__import__(\"os\")'",
    "a point of another form": "UPDATE trials SET point = '{}'",
    "a point of texts": """UPDATE trials SET point = '[["tile", "8"]]'""",
    "a tile of 0": """UPDATE trials SET point = '[["tile", 0]]'""",
    "a tile below 0": """UPDATE trials SET point = '[["tile", -8]]'""",
    "a tile beyond 64 bits": """UPDATE trials SET point = '[["tile", 99999999999999999999]]'""",
    "bytes for a point": "UPDATE trials SET point = x'80'",
    "an unknown outcome": "UPDATE trials SET outcome = 'fast'",
    "a ratio below 0": "UPDATE trials SET ratio = -1",
    "a ratio of no end": "UPDATE trials SET ratio = 9e999",
    "a text for a ratio": "UPDATE trials SET ratio = 'fast'",
    "figures of texts": """UPDATE trials SET figures = '{"registers": "many"}'""",
    "sizes that are no JSON": "UPDATE tasks SET sizes = 'many'",
    "threads below 1": "UPDATE tasks SET threads = 0",
}


@pytest.mark.parametrize("attack", ROWS)
def test_a_row_of_another_kind_is_noticed(path: Path, task: Task, attack: str) -> None:
    change(path, ROWS[attack])
    with pytest.warns(TuningDatabaseWarning, match="is damaged"), open_database(path) as new:
        assert new.trials(task) == []


@pytest.mark.parametrize("attack", [name for name in ROWS if name.startswith(("a point", "a tile", "bytes"))])
def test_a_compile_takes_no_such_point(path: Path, task: Task, attack: str) -> None:
    """It reads single rows, and does not look at the others."""
    change(path, ROWS[attack])
    with Database(path) as database, pytest.raises(sqlite3.DatabaseError):
        database.best(task)


def test_choices_that_are_no_text(path: Path) -> None:
    change(path, "UPDATE facts SET value = x'00ff'")
    assert place._choices(path) == ""


LINES: dict[str, Callable[[dict[str, Any]], object]] = {
    "an unknown key": lambda line: line.update(code="import os"),
    "no task": lambda line: line.pop("task"),
    "a task with more": lambda line: line["task"].update(more=1),
    "a text that is none": lambda line: line["task"].update(text=5),
    "no trials": lambda line: line.update(trials={}),
    "a trial without a point": lambda line: line["trials"][0].pop("point"),
    "a point of another form": lambda line: line["trials"][0].update(point="[[1, 2]]"),
    "a tile of 0": lambda line: line["trials"][0].update(point='[["tile", 0]]'),
    "a ratio that is a text": lambda line: line["trials"][0].update(ratio="0.5"),
    "a ratio that is none": lambda line: line["trials"][0].update(ratio=float("nan")),
    "an unknown outcome": lambda line: line["trials"][0].update(outcome="fast"),
    "a time that is a text": lambda line: line["trials"][0].update(made_at="now"),
}


@pytest.mark.parametrize("attack", LINES)
def test_an_export_of_others_is_checked(path: Path, tmp_path: Path, attack: str) -> None:
    export = tmp_path / "trials.jsonl"
    with open_database(path) as database:
        exchange.export_trials(database, export)
    line = json.loads(export.read_text())
    LINES[attack](line)
    export.write_text(json.dumps(line) + "\n")
    with open_database(tmp_path / "mine.db") as mine:
        with pytest.raises(NotATuningExport, match="line 1"):
            exchange.import_trials(mine, export)
        assert mine.tasks("cpu") == []
