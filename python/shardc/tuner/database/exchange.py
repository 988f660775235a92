"""Export, import, merging and pruning of trials. Exports are JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from shardc.backends.tuning.task import Task
from shardc.diagnostics.tuner import NotATuningExport
from shardc.runtime.schema.checks import first_problem
from shardc.tuner.database.database import COLUMNS, Database
from shardc.tuner.database.rows import EXPORTED
from shardc.tuner.task_tuning import generator

TASK = ("text", "target", "threads", "label")
TRIAL = ("generator", *COLUMNS.split(", "), "made_at")
Line = dict[str, Any]
"""Line of an export: a ``task``, and its ``trials``."""


def export_trials(database: Database, path: Path, best_only: bool = False) -> int:
    """Write a line for each task with its trials, or only the best ones; return their number."""
    count = 0
    with path.open("w") as file:
        for line in _lines(database, "best" if best_only else "trials"):
            count += len(line["trials"])
            file.write(json.dumps(line) + "\n")
    return count


def import_trials(database: Database, path: Path) -> int:
    """Add the export's new trials, all or none; return their number. Raises NotATuningExport."""
    return _add(database, _read(path))


def merge(database: Database, other: Database) -> int:
    """Add the trials of another database that are new here; return their number."""
    return _add(database, _lines(other, "trials"))


def prune(database: Database, keep: int = 16) -> int:
    """Delete all but each task's ``keep`` best points of today's generator; return the number deleted."""
    with database.writing() as connection:
        kept = [
            number
            for task, target in connection.execute("SELECT id, target FROM tasks").fetchall()
            for (number,) in connection.execute(
                "SELECT id FROM latest WHERE task = ? AND generator = ? AND outcome = 'measured' ORDER BY "
                "ratio, id LIMIT ?",
                (task, generator(target), keep),
            )
        ]
        connection.execute("CREATE TEMP TABLE kept (id INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO kept VALUES (?)", [(number,) for number in kept])
        gone = connection.execute("DELETE FROM trials WHERE id NOT IN (SELECT id FROM kept)").rowcount
        connection.execute("DROP TABLE kept")
        connection.execute("DELETE FROM tasks WHERE id NOT IN (SELECT task FROM trials)")
    return gone


def _lines(database: Database, table: str) -> Iterator[Line]:
    tasks = database.connection.execute(f"SELECT id, {', '.join(TASK)} FROM tasks ORDER BY id").fetchall()
    of_task = f"SELECT {', '.join(TRIAL)} FROM {table} WHERE task = ? ORDER BY id"
    for number, *task in tasks:
        rows = database.connection.execute(of_task, (number,))
        trials = [dict(zip(TRIAL, row, strict=True)) for row in rows]
        if trials:
            yield {"task": dict(zip(TASK, task, strict=True)), "trials": trials}


def _read(path: Path) -> Iterator[Line]:
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            line = json.loads(text)
        except ValueError as error:
            raise NotATuningExport(line=number, reason=f"it is not JSON ({error})", where=str(path)) from None
        if (reason := first_problem(EXPORTED, line)) is not None:
            raise NotATuningExport(line=number, reason=reason, where=str(path))
        yield line


def _add(database: Database, lines: Iterable[Line]) -> int:
    count = 0
    with database.writing() as connection:
        for line in lines:
            number = database.task_number(Task(**line["task"]))
            known = f"SELECT {', '.join(TRIAL)} FROM trials WHERE task = ?"
            present = set(connection.execute(known, (number,)))
            rows = [row for t in line["trials"] if (row := tuple(t[name] for name in TRIAL)) not in present]
            database.add(number, sorted(rows, key=lambda row: row[-1]))
            count += len(rows)
        if count:
            database.choices_changed()
    return count
