"""``shardc trials``: exports, imports, prunes and summarizes this machine's tuning database."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from shardc.diagnostics.cli import UnreadableInput
from shardc.diagnostics.text import table
from shardc.text_files import check_writable, read_text, writing
from shardc.tuner.database import exchange
from shardc.tuner.database.database import Database, open_database
from shardc.tuner.database.place import database_path
from shardc.tuner.database.ranges import Range, ranges
from shardc.tuner.task_tuning import local_tuning


def export_trials(path: Path, best: bool = False) -> str:
    """Write all trials, or the best of each kernel, as JSON lines and report how many.

    Raises UnwritableOutput.
    """
    check_writable(path)
    with open_database() as database, writing(path):
        count = exchange.export_trials(database, path, best)
    return f"{count} trials of {database_path()} are in {path}"


def import_trials(path: Path) -> str:
    """Add the trials of an export or of another database; a damaged database is not modified.

    Raises UnreadableInput, NotATuningExport, TuningDatabaseNewer.
    """
    with path.open("rb") as file:
        is_sqlite = file.read(16) == b"SQLite format 3\0"
    with open_database() as database:
        if is_sqlite:
            with _other(path) as other:
                count = exchange.merge(database, other)
        else:
            read_text(path)
            count = exchange.import_trials(database, path)
    return f"{count} trials that were not there are added to {database_path()}"


def _other(path: Path) -> Database:
    try:
        found = Database(path)
        found.check()
    except sqlite3.DatabaseError as error:
        raise UnreadableInput(file=path, problem=str(error)) from None
    return found


def prune_trials(keep: int) -> str:
    """Delete all but the ``keep`` best trials of each kernel and report how many."""
    with open_database() as database:
        count = exchange.prune(database, keep)
    left = f"of each kernel the {keep} best of today's code generators are left"
    return f"{count} trials are gone from {database_path()}; {left}"


def ranges_text(bound: float, most: int | None, target: str | None = None) -> str:
    """Report the fewest configurations for each kernel measured at several sizes, and the largest loss."""
    with open_database() as database:
        found = ranges(database, target or local_tuning().task_target, bound, most)
    return "\n\n".join(map(_range, found)) if found else "no kernel was measured at several sizes"


def _range(found: Range) -> str:
    cover = found.cover
    count = f"{len(cover.points)} configuration{'s' * (len(cover.points) != 1)} for {len(found.tasks)} sizes"
    none = "none of them was measured"
    rows = [[task.label, str(cover.choice.get(task, none))] for task in found.tasks]
    worst = f"{count}: at worst {cover.worst:.3f} of the time with its own ({cover.worst_task.label})"
    return "\n".join([worst, *(f"  {line}" for line in table(rows))])
