"""Path of the tuning database, and a hash of its choices, for compiles that do not load the tuner."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from shardc.cache.place import cache_folder
from shardc.environment import SHIPPED_TUNING, TUNING_DB

SHIPPED = Path(__file__).with_name("shipped.jsonl")
"""File of the points that come with shardc (``shipped.py``)."""


def database_path() -> Path:
    """Return ``$SHARDC_TUNING_DB``, or by default a file beside the folder of compiled kernels."""
    return TUNING_DB.get() or cache_folder().with_name(f"{cache_folder().name}-tuning.db")


def shipped_file() -> Path | None:
    """Return the file of shipped points, or ``$SHARDC_SHIPPED_TUNING``; None if that is set and empty."""
    return SHIPPED if SHIPPED_TUNING.text() is None else SHIPPED_TUNING.get()


def tuning_choices() -> str:
    """Return a key that changes whenever a kernel's configuration may change; empty if nothing is tuned."""
    shipped = shipped_file()
    return " ".join(filter(None, [_choices(database_path()), shipped_choices(shipped) if shipped else ""]))


@cache
def shipped_choices(file: Path) -> str:
    """Return a hash of the shipped points; empty without such a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:32] if file.is_file() else ""


def _choices(path: Path) -> str:
    """Return a database's key of its choices, without loading the tuner; empty if it is unreadable."""
    if not path.is_file():
        return ""
    # Imported here because most processes have no database.
    import sqlite3

    from shardc.tuner.database.schema import check_schema, distrust

    try:
        connection = sqlite3.connect(f"file:{path.absolute()}?mode=rw", uri=True)
        try:
            distrust(connection)
            check_schema(connection)
            found = connection.execute("SELECT value FROM facts WHERE name = 'choices'").fetchone()
        finally:
            connection.close()
    except sqlite3.DatabaseError:
        return ""
    return found[0] if found and isinstance(found[0], str) else ""
