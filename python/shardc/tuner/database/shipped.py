"""Trials that come with shardc: what is consulted where this machine's own database knows nothing."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from shardc.tuner.database.database import Database, Found
from shardc.tuner.database.exchange import import_trials
from shardc.tuner.database.place import SHIPPED
from shardc.tuner.task import Task


def best_shipped(task: Task, file: Path = SHIPPED) -> Found | None:
    """As :meth:`shardc.tuner.database.database.Database.best` says it."""
    return _database(file).best(task) if file.is_file() else None


@cache
def _database(file: Path) -> Database:
    """In memory."""
    database = Database(Path(":memory:"))
    import_trials(database, file)
    return database
