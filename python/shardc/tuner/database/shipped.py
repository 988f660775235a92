"""Trials that come with shardc: what is consulted where this machine's own database knows nothing."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from shardc.tuner.database.database import Database, Found
from shardc.tuner.database.exchange import import_trials
from shardc.tuner.task import Task

FILE = Path(__file__).with_name("shipped.jsonl")
"""Of :func:`shardc.tuner.database.exchange.export_trials`, with the best of each task."""


def best_shipped(task: Task, file: Path = FILE) -> Found | None:
    """As :meth:`shardc.tuner.database.database.Database.best` says it."""
    return _database(file).best(task) if file.is_file() else None


@cache
def shipped_choices(file: Path = FILE) -> str:
    """What they are."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:32] if file.is_file() else ""


@cache
def _database(file: Path) -> Database:
    """In memory."""
    database = Database(Path(":memory:"))
    import_trials(database, file)
    return database
